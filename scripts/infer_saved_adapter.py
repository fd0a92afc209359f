"""Answers one prompt: ``symbiont infer``.

python scripts/infer_saved_adapter.py --run artifacts/mine --prompt 'math.add: 47+8'
"""

from door import open_door

if __name__ == "__main__":
    open_door()

"""Asks a run or an adapter holdout questions: ``symbiont evaluate``.

python scripts/evaluate_holdout.py --holdout FILE --evo-checkpoint artifacts/mine/checkpoint.pt
"""

from door import open_door

if __name__ == "__main__":
    open_door()

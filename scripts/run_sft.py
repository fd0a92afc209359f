"""Compute-matched supervised fine-tuning: ``symbiont sft``.

python scripts/run_sft.py --checkpoint artifacts/mine/checkpoint.pt --data train.jsonl
"""

from door import open_door

if __name__ == "__main__":
    open_door()

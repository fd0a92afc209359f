"""Asks the best of every family the questions of all families: ``symbiont transfer``.

python scripts/evaluate_transfer.py --evo-checkpoint artifacts/mine/checkpoint.pt --holdout FILE
"""

from door import open_door

if __name__ == "__main__":
    open_door()

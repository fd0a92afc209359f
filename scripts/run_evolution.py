"""Starts a run, or goes on with one: ``symbiont run``.

python scripts/run_evolution.py --config config/steady.yaml --generations 50 --output artifacts/mine
"""

from door import open_door

if __name__ == "__main__":
    open_door()

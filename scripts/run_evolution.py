"""Starts a run: ``symbiont run``.

python scripts/run_evolution.py demo seed=1 --out artifacts/mine
"""

from door import pass_on

if __name__ == "__main__":
    pass_on("run")

"""Says where two runs differ: ``symbiont diff``.

python scripts/compare_runs.py artifacts/one artifacts/other
"""

from door import open_door

if __name__ == "__main__":
    open_door()

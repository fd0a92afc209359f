"""Writes the report of a run: ``symbiont report``.

python scripts/analyze_ecology_run.py artifacts/mine --plots --report
"""

from door import open_door

if __name__ == "__main__":
    open_door()

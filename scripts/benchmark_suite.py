"""The three controls in two minutes: ``symbiont suite --ci``.

python scripts/benchmark_suite.py --mode ci --output artifacts/ci
"""

from door import open_door

if __name__ == "__main__":
    open_door()

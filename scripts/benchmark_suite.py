"""The three controls in two minutes: ``symbiont suite --ci``.

python scripts/benchmark_suite.py --json result.json
"""

from door import pass_on

if __name__ == "__main__":
    pass_on("suite", "--ci")

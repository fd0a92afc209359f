"""Makes a paper pack of a suite or of runs: ``symbiont pack``.

python scripts/paper_pack.py artifacts/embedded-v2
"""

from door import pass_on

if __name__ == "__main__":
    pass_on("pack")

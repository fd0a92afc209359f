"""Makes a paper pack of a suite or of runs: ``symbiont pack``.

python scripts/paper_pack.py --frozen F --single S --ecology E --output docs/paper_packs/mine
"""

from door import open_door

if __name__ == "__main__":
    open_door()

"""Compute-matched supervised fine-tuning: ``symbiont sft``.

python scripts/run_sft.py --match artifacts/mine --out artifacts/sft
"""

from door import pass_on

if __name__ == "__main__":
    pass_on("sft")

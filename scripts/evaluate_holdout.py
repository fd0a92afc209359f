"""Asks a run holdout questions: ``symbiont evaluate``.

python scripts/evaluate_holdout.py artifacts/mine --holdout evaluation/paper_holdout.jsonl
"""

from door import pass_on

if __name__ == "__main__":
    pass_on("evaluate")

"""Writes train, selection and holdout questions: ``symbiont data``.

python scripts/generate_grid_datasets.py tasks/trained --out data/grid --per-cell 20,4,10 --sft
"""

from door import pass_on

if __name__ == "__main__":
    pass_on("data")

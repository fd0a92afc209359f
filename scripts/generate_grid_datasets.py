"""Writes train, selection and holdout questions: ``symbiont data``.

python scripts/generate_grid_datasets.py --config config/tasks/trained.yaml --out-dir data/grid
"""

from door import open_door

if __name__ == "__main__":
    open_door()

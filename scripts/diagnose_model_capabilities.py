"""Asks a bare host questions of every cell: ``symbiont look``.

python scripts/diagnose_model_capabilities.py --config config/tasks/trained.yaml --per-cell 10
"""

from door import open_door

if __name__ == "__main__":
    open_door()

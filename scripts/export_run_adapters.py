"""Writes living organelles as PEFT folders: ``symbiont export``.

python scripts/export_run_adapters.py --run artifacts/mine --output artifacts/mine/adapters
"""

from door import open_door

if __name__ == "__main__":
    open_door()

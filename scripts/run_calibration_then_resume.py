"""A short run, a verdict on its health, and on: ``symbiont calibrate``.

python scripts/run_calibration_then_resume.py --config config/demo.yaml --output artifacts/mine
"""

from door import open_door

if __name__ == "__main__":
    open_door()

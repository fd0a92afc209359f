#!/usr/bin/env bash
# A short run, a verdict on its health, and the rest of the run: symbiont calibrate.
#
#   scripts/run_calibration_then_resume.sh --config config/demo.yaml --calib-gens 30 --full-gens 50
#
# PYTHON is what it runs on; the original's PY and VENV_BIN say so, too.
set -euo pipefail

here=$(dirname "$0")
PYTHON=${PYTHON:-${PY:-${VENV_BIN:-$here/../.venv/bin}/python}}
exec "$PYTHON" "$here/run_calibration_then_resume.py" "$@"

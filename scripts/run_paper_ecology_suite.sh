#!/usr/bin/env bash
# The paper's runs on Qwen3-0.6B, one after the other. Needs a GPU; the same words again go on.
#
#   scripts/run_paper_ecology_suite.sh all                      # or: frozen, single, ecology, sft, pack
#   scripts/run_paper_ecology_suite.sh all --dry-run
#   scripts/run_paper_ecology_suite.sh ecology host.model=path/to/Qwen3-0.6B seed=1
#
# OUT=artifacts/paper_qwen3 is where they go, another seed or model wants another OUT; PYTHON is what they run
# on, PY or VENV_BIN say so, too. FINAL_HOLDOUT_TASKS is a file that every run answers at its end, and
# FINAL_HOLDOUT_SAMPLE_SIZE how many of its questions.
# One seed, untuned: the comparison with tuning and seeds is symbiont suite paper-qwen3.
set -euo pipefail

here=$(dirname "$0")
OUT=${OUT:-artifacts/paper_qwen3}
PYTHON=${PYTHON:-${PY:-${VENV_BIN:-$here/../.venv/bin}/python}}
[ -x "$(command -v "$PYTHON")" ] || { echo "error: found no $PYTHON: make setup, or set PYTHON" >&2; exit 2; }

symbiont() { "$PYTHON" -m symbiont_ecology "$@"; }

live() { # ARM [KEY=VALUE]…
  local arm=$1 folder=$OUT/$1 words=$OUT/$1.words
  shift
  if [ ! -e "$folder/config.yaml" ]; then
    [ -n "$dry" ] || { mkdir -p "$OUT" && echo "$*" >"$words"; }
    symbiont run "experiments/paper_qwen3_$arm" "$@" --out "$folder"
  elif [ -n "$dry" ]; then
    echo "$arm is there: symbiont resume $folder"
  elif [ "$*" = "$(cat "$words" 2>/dev/null)" ]; then
    symbiont resume "$folder"
  else # a change of what can change makes it longer, any other is refused
    symbiont resume "$folder" "$@"
  fi
}

pack() {
  if [ -n "$dry" ]; then
    echo "pack        $OUT/packs/paper_qwen3, when the four runs are there"
  else
    symbiont pack "$OUT"/{frozen,single,ecology,sft} --out "$OUT/packs/paper_qwen3"
  fi
}

step=${1:---help}
shift || true
[ -z "${FINAL_HOLDOUT_TASKS:-}" ] || set -- "$@" "run.final_holdout=$FINAL_HOLDOUT_TASKS"
[ -z "${FINAL_HOLDOUT_SAMPLE_SIZE:-}" ] || set -- "$@" "run.final_holdout_samples=$FINAL_HOLDOUT_SAMPLE_SIZE"
dry=
for word in "$@"; do [ "$word" != --dry-run ] || dry=--dry-run; done

case $step in
  all) for arm in frozen single ecology sft; do live "$arm" "$@"; done; pack ;;
  frozen | single | ecology | sft) live "$step" "$@" ;;
  pack) pack ;;
  -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" ;;
  *) echo "error: expected all, frozen, single, ecology, sft or pack, got '$step'" >&2; exit 2 ;;
esac

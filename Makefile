# `make` alone prints this list.

PYTHON ?= python3
# Another package index for torch, such as one with builds for the CPU alone. Empty: the default index.
TORCH_INDEX ?=
# What calibrate-resume runs. OUTPUT, SEED, CHECKPOINT_EVERY, DEVICE, BATCH_SIZE (questions per cell and
# generation), FINAL_HOLDOUT (or FINAL_HOLDOUT_TASKS) and FINAL_HOLDOUT_SAMPLE_SIZE are as CONFIG has them
# where they are not given. EVOLORA_PLASTICITY=hebbian is learning_rule=hebbian.
CONFIG ?= demo
FINAL_HOLDOUT_FILE = $(or $(FINAL_HOLDOUT),$(FINAL_HOLDOUT_TASKS))
CALIB_GENS ?= 30
FULL_GENS ?= 50
# What regex-evo-vs-sft runs, likewise. REGEX_RATES: step sizes that fine-tuning tries. REGEX_EVAL_MAX_SAMPLES:
# questions of the evaluation.
REGEX_CONFIG ?= experiments/regex
REGEX_OUTPUT ?= artifacts/regex
REGEX_CALIB_GENS ?= 40
REGEX_FULL_GENS ?= 120
REGEX_RATES ?= 0.003,0.006
# The protocol that paper runs: its suite goes to artifacts/$(PACK), its pack to docs/paper_packs/$(PACK).
PACK ?= embedded-v2

# Where a container forbids to keep compiled files, each of hundreds of commands would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-real calibrate-resume regex-evo-vs-sft paper ablate
.PHONY: all check test test-fast test-oldest test-wheel wheels fuzz mutants sanitize docs docs-links docs-check
.PHONY: bench evidence host notebooks clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "  PYTHON=python3.12       another interpreter (3.11 or newer)"
	@echo "  TORCH_INDEX=URL         another package index for torch"
	@echo "  CONFIG=demo CALIB_GENS=30 FULL_GENS=50 OUTPUT= SEED= CHECKPOINT_EVERY= DEVICE= BATCH_SIZE= FINAL_HOLDOUT= FINAL_HOLDOUT_SAMPLE_SIZE="
	@echo "                          what calibrate-resume runs"
	@echo "  REGEX_CONFIG=experiments/regex REGEX_CALIB_GENS=40 REGEX_FULL_GENS=120 REGEX_RATES=0.003,0.006 REGEX_OUTPUT=artifacts/regex"
	@echo "                          what regex-evo-vs-sft runs"
	@echo "  PACK=embedded-v2        the protocol that paper runs: symbiont list protocols"
	@echo "  MUTANTS='*ledger*'      the changes that mutants makes"

setup: $(INSTALLED) ## make .venv with everything that demo and test need

# The stamp: nothing is done while these are as they were. Installing compiles cpu_kernels.c, if there is a compiler.
$(INSTALLED): pyproject.toml constraints.txt scripts/build_native.py src/symbiont_ecology/extensions/native/cpu_kernels.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo \
	  "error: this needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) -V 2>&1): make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo \
	  "error: $(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(if $(TORCH_INDEX),$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --index-url $(TORCH_INDEX) torch)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup ## watch an ecology learn on the embedded host, at most 5 minutes; run it again to go on
	$(BIN)/symbiont demo

demo-real: setup ## the same on a real language model, SmolLM2 (93 MB are downloaded), at most 15 minutes
	$(BIN)/symbiont demo-real

calibrate-resume: setup ## a short run of CONFIG, a verdict on its health, and on to FULL_GENS if it is well; again: goes on
	$(BIN)/symbiont calibrate '$(CONFIG)' --generations $(CALIB_GENS) --full $(FULL_GENS) $(strip \
	  $(if $(OUTPUT),--out '$(OUTPUT)') \
	  $(if $(SEED),'seed=$(SEED)') \
	  $(if $(CHECKPOINT_EVERY),'run.checkpoint_every=$(CHECKPOINT_EVERY)') \
	  $(if $(DEVICE),'host.device=$(DEVICE)') \
	  $(if $(BATCH_SIZE),'strategy.questions=$(BATCH_SIZE)') \
	  $(if $(FINAL_HOLDOUT_FILE),'run.final_holdout=$(FINAL_HOLDOUT_FILE)') \
	  $(if $(FINAL_HOLDOUT_SAMPLE_SIZE),'run.final_holdout_samples=$(FINAL_HOLDOUT_SAMPLE_SIZE)') \
	  $(if $(filter hebbian,$(EVOLORA_PLASTICITY)),learning_rule=hebbian))

regex-evo-vs-sft: setup ## patterns: calibrate a run, go on, fine-tune with its compute, ask both; some minutes; again: goes on
	test -e '$(REGEX_OUTPUT)/data' || $(BIN)/symbiont data '$(REGEX_CONFIG)' --per-cell 200,40,100 --sft --out '$(REGEX_OUTPUT)/data'
	$(BIN)/symbiont calibrate '$(REGEX_CONFIG)' --generations $(REGEX_CALIB_GENS) --full $(REGEX_FULL_GENS) --out '$(REGEX_OUTPUT)/run' $(strip \
	  $(if $(REGEX_SEED),'seed=$(REGEX_SEED)') \
	  $(if $(REGEX_CHECKPOINT_EVERY),'run.checkpoint_every=$(REGEX_CHECKPOINT_EVERY)') \
	  $(if $(REGEX_DEVICE),'host.device=$(REGEX_DEVICE)') \
	  $(if $(REGEX_BATCH_SIZE),'strategy.questions=$(REGEX_BATCH_SIZE)') \
	  $(if $(filter hebbian,$(EVOLORA_PLASTICITY)),learning_rule=hebbian))
	$(BIN)/symbiont sft --match '$(REGEX_OUTPUT)/run' --rates $(REGEX_RATES) --out '$(REGEX_OUTPUT)/sft'
	$(BIN)/symbiont baselines '$(REGEX_OUTPUT)/run' --sft '$(REGEX_OUTPUT)/sft/adapter' --holdout '$(REGEX_OUTPUT)/data/holdout.jsonl' \
	  --routing family --json '$(REGEX_OUTPUT)/evaluation.json' $(strip \
	  $(if $(REGEX_EVAL_MAX_SAMPLES),--max-samples $(REGEX_EVAL_MAX_SAMPLES)))

# One thread in each worker: threads of several workers would wait for each other's cores. Files are dealt out as
# they come, so that long ones are begun early and the short ones of tests/unit fill what is left.
test: setup ## run the tests, ten minutes on two cores
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

# What has no language model, no process of its own and no browser. FAST_TESTS: folders and options of pytest.
FAST_TESTS ?= tests/architecture $(filter-out $(addprefix tests/unit/test_,adapter_comparison.py flops.py listing.py memory.py operators_on_peft.py turns.py),$(wildcard tests/unit/test_*.py))
test-fast: setup ## run the quick ones, two minutes on two cores
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile $(FAST_TESTS)

fuzz: setup ## what comes from outside, made bad by draw: 3,000 cases of each kind, some minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/fuzz --cases 3000 -s

# MUTANTS: names of changes, with wildcards; empty: all of [tool.mutmut] in pyproject.toml. Interrupted, it goes on.
MUTANTS ?=
mutants: setup ## change what must never be wrong in small ways and see whether tests notice it; an hour or more
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[mutants]'
	OMP_NUM_THREADS=1 PATH="$(abspath $(BIN)):$$PATH" nice -n 19 mutmut run --max-children 2 $(if $(MUTANTS),'$(MUTANTS)')

# Direct dependencies at the lowest versions that pyproject.toml allows. OLDEST_TESTS: what is run, files of tests or folders.
OLDEST_TESTS ?= tests/unit tests/contracts/test_kernel.py tests/engine/test_resume.py tests/engine/test_resume_disk.py
test-oldest: setup ## the same with the oldest dependencies that are allowed, in build/oldest; some 7 GB, an hour
	$(BIN)/python -m pip install -q --disable-pip-version-check uv
	$(BIN)/uv venv -q --seed --clear --python $(BIN)/python build/oldest
	$(BIN)/uv pip install -q --compile-bytecode --python build/oldest/bin/python --resolution lowest-direct -e '.[dev,data,serve,rewards]'
	OMP_NUM_THREADS=1 build/oldest/bin/python -m pytest $(OLDEST_TESTS)

wheels: setup ## into dist: the source, a wheel for Linux with the compiled passes, and one for any machine
	$(BIN)/python -m pip install -q --disable-pip-version-check build
	$(BIN)/python -m build --outdir dist
	HATCH_BUILD_NO_HOOKS=true $(BIN)/python -m build --wheel --outdir dist

test-wheel: wheels ## install the wheels outside the checkout and try the commands, some minutes
	$(BIN)/python scripts/try_wheels.py dist

check: setup ## format, lint, types, import order
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --ignore-missing-imports benchmarks scripts
	$(BIN)/python -m pytest tests/architecture

sanitize: setup ## the compiled passes under ASAN and UBSAN, with damaged hosts too; needs gcc; some ten minutes
	OMP_NUM_THREADS=1 $(BIN)/python scripts/sanitize.py

docs: setup ## build the site of README and docs in build/site, run the examples in docstrings; half a minute
	$(BIN)/sphinx-build -W --keep-going -q -c docs . build/site
	$(BIN)/sphinx-build -W --keep-going -q -b doctest -d build/site/.doctrees -c docs . build/doctest
	@echo "the site: build/site/index.html"

docs-links: setup ## ask for every address that README and docs name; needs the network
	$(BIN)/sphinx-build -q -b linkcheck -c docs . build/links

docs-check: setup ## make paper packs and pages of ablations again, compare them and the figures in pages with what is committed
	$(BIN)/python scripts/docs_check.py

all: check test ## check and test

host: setup ## rebuild the embedded host, at most 45 minutes
	$(BIN)/python scripts/train_host.py

bench: setup ## time the kernel against PEFT, SmolLM2 too if it is there, write docs/results/kernel.md, at most 30 minutes
	@status=0; \
	$(BIN)/python benchmarks/kernel.py || status=1; \
	$(BIN)/python benchmarks/real_host.py --quick || status=1; exit $$status

evidence: setup ## live the demo over five seeds and write its figures into the pages, some five minutes
	$(BIN)/python scripts/evidence.py
	$(BIN)/python scripts/docs_check.py --fill

paper: setup ## run all of protocol PACK and make its paper pack (embedded-v2: some two hours on two cores); again: goes on
	$(BIN)/symbiont suite '$(PACK)' --out 'artifacts/$(PACK)'
	$(BIN)/symbiont pack 'artifacts/$(PACK)' --out 'docs/paper_packs/$(PACK)'

ablate: setup ## run ecologies with and without each mechanism, make docs/results/ablations*.md; again: goes on
	$(BIN)/symbiont ablate
	$(BIN)/symbiont ablate config/ablations/life.yaml
	$(BIN)/symbiont ablate config/ablations/evolution.yaml

notebooks: setup ## run the notebooks of docs/notebooks anew and keep their outputs, about a minute
	$(BIN)/python scripts/notebooks.py

clean: ## remove what was built, but not artifacts/
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

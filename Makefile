# Each target does all the set-up it needs; a fresh Debian/Ubuntu machine with Python 3.11 is enough.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# One thread per process: two runs share two cores, and busy threads on a shared core crawl.
# The allocator settings keep large buffers mapped between steps (2x on the training step); jobs of
# the workflow set them themselves (dac/io/environment.py).
export OMP_NUM_THREADS ?= 1
CASES ?= 5000
SEED ?= 1
CPU_JOB := MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 MALLOC_TOP_PAD_=268435456
PYTEST := $(CPU_JOB) $(BIN)/python -m pytest
LONG := slurm or browser or sshd or faults or fuzz

.PHONY: help demo report plan test test-all fuzz lint format docs bench lock clean

help:
	@echo "make demo      train four methods on handwritten digits and show a table (minutes, no network)"
	@echo "make report    the demo's results, figures and provenance on one page, results/report.html"
	@echo "make plan      what the whole paper costs: runs, jobs, GPU hours, disk"
	@echo "make test      all tests that need no Slurm, browser or ssh server and kill no build"
	@echo "make test-all  the others; what this machine cannot run is skipped with a reason"
	@echo "make fuzz      hostile inputs: make fuzz CASES=5000 SEED=1"
	@echo "make lint      ruff, mypy, snakefmt and snakemake --lint"
	@echo "make docs      the documentation as a site in build/site"
	@echo "make bench     ratios of our step, augmentation and losses to measured floors"

demo: $(VENV)/.ready
	@$(BIN)/python -m dac.workflow.watch --suite demo

report: $(VENV)/.ready
	@$(BIN)/snakemake --profile profiles/local --config suite=demo -- report
	@echo "open results/report.html"

plan: $(VENV)/.ready
	@$(BIN)/python -m dac.plan --suite paper

test: $(VENV)/.ready
	$(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder -m "not ($(LONG))"

test-all: $(VENV)/.ready
	$(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder -m "$(LONG)" # Slurm's are one file

fuzz: $(VENV)/.ready
	@$(CPU_JOB) PYTHONPATH=tests/support $(BIN)/python tests/fuzz/campaign.py --cases $(CASES) --seed $(SEED)

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint

format: $(VENV)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow

docs: $(VENV)/.ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open build/site/index.html"

bench: $(VENV)/.ready
	$(BIN)/python -m benchmarks

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info[:2] >= (3, 11) else "dac needs Python 3.11 or newer; set PYTHON=...")'
	@echo "building the environment in $(VENV), once; this takes minutes"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet -r requirements.in
	( echo "# Every package of the environment, pinned. Made by \`make lock\` from requirements.in."; \
	  echo "# torch installs its CUDA build where there is one and its CPU build elsewhere, so no hashes."; \
	  build/lock/bin/pip freeze --all | sed 's/+cpu//' | grep -v '^pip=\|^nvidia-\|^triton' ) > requirements.lock

clean:
	rm -rf $(VENV) build

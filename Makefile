# Each target does all the set-up it needs; a fresh Debian/Ubuntu machine with Python 3.11 is enough.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# One thread per process: two runs share two cores, and busy threads on a shared core crawl.
# The allocator settings keep large buffers mapped between steps (2x on the training step); jobs of
# the workflow set them themselves (dac/job_environment.py).
export OMP_NUM_THREADS ?= 1
CPU_JOB := MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 MALLOC_TOP_PAD_=268435456

SNAKEMAKE := $(BIN)/snakemake --profile workflow/profiles/local --config suite=demo --

.PHONY: demo report plan test test-slurm lint format bench lock clean help

help:
	@echo "make demo        train four methods on handwritten digits and show a table (minutes, no network)"
	@echo "make report      the demo's results, figures and provenance on one page, results/report.html"
	@echo "make plan        what the whole paper costs: runs, jobs, GPU hours, disk"
	@echo "make test        the whole test suite; what this machine cannot run is skipped with a reason"
	@echo "make test-slurm  the workflow on a real Slurm on this machine (root, Debian or Ubuntu)"
	@echo "make lint        ruff, snakefmt, snakemake --lint and mypy"
	@echo "make bench       ratios of our step, augmentation and losses against measured floors"

demo: $(VENV)/.ready
	$(SNAKEMAKE) all
	@cat results/tables/digits.md
	@echo "tables are in results/tables, pictures in results/figures"

report: $(VENV)/.ready
	$(SNAKEMAKE) report
	@echo "open results/report.html"

plan: $(VENV)/.ready
	$(BIN)/python -m dac.plan --suite paper

test: $(VENV)/.ready
	$(CPU_JOB) $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slurm"
	$(CPU_JOB) $(BIN)/python -m pytest -m slurm # one after the other: a machine has one Slurm

test-slurm: $(VENV)/.ready
	workflow/local-slurm install
	$(CPU_JOB) DAC_REQUIRE_SLURM=1 $(BIN)/python -m pytest -m slurm

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

bench: $(VENV)/.ready
	$(BIN)/python -m dac.bench

$(VENV)/.ready: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info[:2] >= (3, 11) else "dac needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet -r requirements.in
	( echo "# Every package of the environment, pinned. Made by \`make lock\` from requirements.in."; \
	  echo "# torch installs its CUDA build where there is one and its CPU build elsewhere, so no hashes."; \
	  build/lock/bin/pip freeze --all | sed 's/+cpu//' | grep -v '^pip=\|^nvidia-\|^triton' ) > requirements.lock

clean:
	rm -rf $(VENV) build

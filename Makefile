# edgesim: `make help` lists the targets. All set-up happens on demand in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEVELOPING := $(VENV)/.developing
SCENARIO ?= scenarios/quickstart.yaml
SCHEDULES ?= 500
SEED ?= 1
CASES ?= 1000

.PHONY: help demo test thorough check docs bench faults fuzz mutants golden dashboards

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/:/' | column -t -s ':'

demo: $(INSTALLED)  ## install, train the quickstart fleet, print its results
	$(BIN)/edgesim run $(SCENARIO)

test: $(DEVELOPING)  ## install and run all tests
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses=3 --dist=worksteal

thorough: $(DEVELOPING)  ## all tests, with all cases of which `make test` takes a few
	EDGESIM_TESTS=thorough PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses=3 --dist=worksteal

check: $(DEVELOPING)  ## style, types and the order of layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(DEVELOPING)  ## the site, site/index.html, from docs/ and docstrings; a broken link or name fails
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet --doctree-dir build/doctrees docs site

faults: $(DEVELOPING)  ## fleets under SCHEDULES seeded schedules of faults, from SEED on
	@OMP_NUM_THREADS=1 $(BIN)/python tests/faults/run_schedules.py --schedules $(SCHEDULES) --seed $(SEED)

fuzz: $(DEVELOPING)  ## CASES seeded cases of each fuzzer, or of KIND, from SEED on
	@OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/run_cases.py --cases $(CASES) --seed $(SEED) $(if $(KIND),--kind $(KIND))

mutants: $(DEVELOPING)  ## changes of the code that no test notices; PATHS="topologies data", SAMPLE=100 of each
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[mutants]'
	@$(BIN)/python tests/mutants/run_mutants.py $(PATHS) --seed $(SEED) $(if $(SAMPLE),--sample $(SAMPLE))

golden: $(DEVELOPING)  ## record digests of results anew, after a change that is meant to move them; NAMES="a b": of these alone
	$(BIN)/python tests/golden/record.py $(NAMES)

dashboards: $(DEVELOPING)  ## Grafana dashboards and rules for Prometheus, from the table of metrics
	$(BIN)/python dashboards/make_dashboards.py

bench: $(DEVELOPING)  ## benchmarks that print ratios measured in one run
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/memory.py

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "edgesim needs Python 3.11 or newer; name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(DEVELOPING): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

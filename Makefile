# `make` lists the targets. Everything is installed into .venv, nothing outside this folder.

PYTHON  ?= python3
WORKERS ?= 2
DEMO    ?= .venv/bin/headstart compare examples/demo/*.toml --seeds 5 --out runs/demo

BIN := .venv/bin
# -qq: errors only.
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
unexport VIRTUAL_ENV PYTHONHOME

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo install test test-slow test-all test-durations test-data lint types layers pytest \
	mutants release-check bench bench-scale bench-federation reproduction-page format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' Makefile

demo: .venv/.base  ## train on the embedded digits and compare; needs no data
	$(DEMO)

install: .venv/.dev  ## build .venv with everything needed to work on the project

test: lint types layers pytest  ## static checks and all tests but the slow ones; under 6 minutes

test-slow: .venv/.dev  ## the slow tests: federations over loopback, kills, whole studies
	$(BIN)/python -m pytest -n $(WORKERS) -m "slow and not data"

test-all: test test-slow  ## everything, as in continuous integration

test-durations: .venv/.dev  ## the slowest tests of the last run
	@$(BIN)/python -m tools.durations

lint: .venv/.dev  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev  ## static types
	$(BIN)/mypy

layers: .venv/.dev  ## who may import whom
	$(BIN)/lint-imports

pytest: .venv/.dev  ## tests and docstring examples
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow and not data"

test-data: .venv/.dev  ## tests on the real data files in the folder HEADSTART_DATA
	@test -d "$$HEADSTART_DATA" || { echo "HEADSTART_DATA='$$HEADSTART_DATA' is not a folder; set it to the one with the data files" >&2; exit 2; }
	$(BIN)/python -m pytest -m data

mutants: .venv/.dev  ## do the core's tests notice small changes? MUTANTS=--all for every one
	$(BIN)/python -m tools.mutants --jobs $(WORKERS) $(MUTANTS)

release-check: .venv/.dev  ## build wheel and sdist, install the wheel alone, run the demo from it
	$(BIN)/python -m tools.release_check

bench: .venv/.bench  ## how fast: against PyTorch, FedJAX and the machine's peak; about 15 minutes
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.end_to_end
	$(BIN)/python -m benchmarks.where_time_goes

bench-scale: .venv/.bench  ## how far: to 10,000 active clients and a million in all
	$(BIN)/python -m benchmarks.scale

bench-federation: .venv/.dev  ## what Headstart adds to a round of Flower's, on loopback
	$(BIN)/python -m benchmarks.federation

format: .venv/.dev  ## put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove .venv, caches and build products; runs/ stays
	rm -rf .venv .cache build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

# Two stamps, so that the demo does not pull in the tools of development.
.venv/.base: pyproject.toml constraints.txt
	$(venv)
	@$(PIP) -e .
	@touch $@

.venv/.dev: pyproject.toml constraints.txt
	$(venv)
	@$(PIP) -e ".[dev,parquet,flax,flower]"
	@touch .venv/.base $@

.venv/.bench: pyproject.toml constraints.txt
	$(venv)
	@$(PIP) -e ".[bench]"
	@touch .venv/.base $@

define venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Headstart needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12" >&2; exit 1; }
	@echo "installing into .venv (once) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
endef

reproduction-page: .venv/.base  ## docs/reproduction.md from the stored results; runs nothing
	$(BIN)/headstart reproduce --only-page --page docs/reproduction.md

reference: .venv/.base  ## docs/reference.md from the docstrings of the public names
	$(BIN)/python -m tools.reference

# Every target works on a bare clone: the first one run sets up .venv, later ones reuse it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test checks tests collect lint types imports bench docs mutants format clean

VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.installed-core
COMPILED := $(VENV)/.compiled
DEV := $(VENV)/.installed-dev
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# --no-compile: Python writes a module's bytecode when it is first imported; most of ten thousand modules never are.
INSTALL := $(BIN)/python -m pip install -q --disable-pip-version-check --no-compile -c constraints.txt
unexport PYTHONDONTWRITEBYTECODE

# The first of these that is new enough makes the environment; `make PYTHON=/path/to/python` overrides the choice.
PYTHON := python3 python3.11 python3.12 python3.13

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(CORE) ## run the demonstration
	$(BIN)/pear demo

test: ## run every check: lint, types, import contract, documentation and tests
	@$(MAKE) --no-print-directory checks
	@$(MAKE) --no-print-directory tests

checks: $(CORE) ## run every check but the tests
	@$(MAKE) --no-print-directory -j2 $(COMPILED) lint types imports docs collect

tests: $(COMPILED) $(DEV) ## run the tests
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist worksteal

# Each of the two processes that run the tests imports all of them, and would compile them as well. Here one does, beside
# the type checker.
collect: $(DEV) ## import the tests, and run none
	@found=$$($(ONE_THREAD) $(BIN)/python -m pytest -qq --collect-only 2>&1) || { echo "$$found"; exit 1; }

lint: $(DEV) ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV) ## check type hints
	$(BIN)/mypy

imports: $(DEV) ## check that imports flow one way
	$(BIN)/lint-imports

bench: $(COMPILED) $(DEV) ## measure the exactness of decisions and gradients
	$(BIN)/pear bench exactness

docs: $(DEV) ## build the documentation into site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

mutants: $(DEV) ## change the code at random and see which tests notice; takes long
	$(BIN)/python tools/mutate.py

format: $(DEV) ## format the code and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove build outputs and caches; keeps .venv and pear-output/
	rm -rf build dist site src/*.egg-info lab/src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src lab tests -name __pycache__ -type d -prune -exec rm -rf {} +

# What the demonstration needs, and no more: the library and its command line.
$(CORE): pyproject.toml constraints.txt
	@found=; for python in $(PYTHON); do \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && found="$$python" && break; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "PEAR needs Python 3.11 or newer; none found among: $(PYTHON)." >&2; \
	    echo "Install one, or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; \
	    exit 1; \
	fi; \
	echo "Setting up $(VENV) with $$("$$found" --version); this is done once."; \
	$(BIN)/python -m pip --version >/dev/null 2>&1 || "$$found" -m venv $(VENV)
	@# The pip that comes with Python 3.11 takes twice as long to find out what goes together.
	@$(INSTALL) pip || echo "pip stays as it is, and does the same more slowly."
	$(INSTALL) -e '.[cli]'
	@touch $@

$(COMPILED): $(CORE)
	@echo "Compiling the solvers; this is done once and takes about half a minute."
	$(BIN)/python -m pear.train.compiled
	@touch $@

# All solvers, importers and checkers. By its name: the package itself is installed already, and is not built again.
$(DEV): $(CORE) lab/pyproject.toml
	$(INSTALL) 'pear-dfl[dev]' -e './lab[data]'
	@touch $@

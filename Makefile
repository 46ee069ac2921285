# icecdc: `make` alone shows what there is. Works with GNU make 3.81 and later (the one of macOS).

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
VENV_PYTHON := $(BIN)/python
PIP := $(VENV_PYTHON) -m pip --disable-pip-version-check --no-input
COVERAGE_MINIMUM := 90
# The environment with the lowest versions, and what is tested in it beside the units: every job, against real servers.
LOWEST := .venv-lowest
LOWEST_INTEGRATION := tests/integration/jobs/test_sync.py tests/integration/jobs/test_validate.py \
	tests/integration/jobs/test_dead_letters.py tests/integration/ingest/test_ingest.py
# The text of the schema that is shipped depends on the release of pydantic that wrote it.
LOWEST_NOT := --deselect tests/unit/project/test_indexes_doc.py::it_ships_the_schema_as_the_code_makes_it
# How many processes run the tests. Each has its own Spark, OpenSearch and Kafka. Three keep two cores busy: tests wait a lot.
WORKERS ?= 3
# A file's tests share what its fixtures made, so they stay together; files go in the order of testpaths, slow ones first.
PROCESSES := --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
# Extra arguments for pytest, the demo and the benchmarks, for example: make test-fast ARGS="-k carryover"
ARGS ?=
# How many random histories `make histories` runs, and the seed that decides which.
HISTORIES ?= 500
SEED ?= 20261121
# What `make faults` does, and how long `make soak` takes.
FAULTS ?= 100
STORMS ?= 50
CLUSTER_RUNS ?= 10
# How many recorded traces `make traces` checks at least.
TRACES ?= 100
MINUTES ?= 60
# The other Spark line that is supported, in an environment of its own; what `make test-spark40` runs there.
SPARK40 := .venv-spark40
SPARK40_VERSION := 4.0.5
SPARK40_TESTS ?= tests/histories/test_support_matrix.py tests/integration tests/unit
# What the Databricks CLI printed: databricks bundle schema > schema.json
SCHEMA ?= schema.json
# How many schedules `make simulate` plays.
SCHEDULES ?= 100000

##@ Start here

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "; printf "Usage: make <target> [ARGS=\"...\"]\n"} \
	/^##@ / {printf "\n%s\n", substr($$0, 5)} \
	/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: $(VENV)/.installed ## Make .venv with every package of requirements.lock (done once, redone when the lock changes)

.PHONY: demo
demo: setup ## Export, change, sync and validate real tables against real services; ARGS=--keep: leave OpenSearch running
	@$(VENV_PYTHON) -m demo $(ARGS)

.PHONY: lab
lab: setup ## JupyterLab on the demo's tables, with the notebooks' parameters filled in; stops its OpenSearch when it ends
	@$(VENV_PYTHON) -m demo.lab $(ARGS)

.PHONY: demo-kafka
demo-kafka: setup ## Produce into a real Kafka, ingest into several tables, sync and validate them; results in build/
	@$(VENV_PYTHON) -m demo.kafka $(ARGS)

##@ Check

.PHONY: test
test: setup ## Run the tests, in WORKERS processes of about 4 GiB each
	@$(VENV_PYTHON) -m pytest -m "not tools and not long" $(PROCESSES) $(ARGS)

.PHONY: test-tools
test-tools: setup ## Run the tests of what comes with the package: embedded services and benchmarks
	@$(VENV_PYTHON) -m pytest tests/integration -m tools $(ARGS)

.PHONY: test-long
test-long: setup ## Run the tests that `make test` leaves out for their length: all notebooks in kernels, more kills
	@$(VENV_PYTHON) -m pytest -m long $(ARGS)

.PHONY: test-spark40
test-spark40: $(SPARK40)/.installed ## Run the support matrix, integration and unit tests on Spark 4.0 with Iceberg 1.11; SPARK40_TESTS=
	@ICECDC_HISTORIES=0 $(SPARK40)/bin/python -m pytest -m "not tools and not long" $(PROCESSES) $(SPARK40_TESTS) $(ARGS)

.PHONY: test-schedulers
test-schedulers: setup ## Run the examples of docs/scheduling.md in the real Airflow and Dagster, which uv downloads
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(VENV_PYTHON) -m pytest tests/schedulers $(ARGS)

.PHONY: bundle-schema
bundle-schema: setup ## Compare bundle.yml with the schema of the Databricks CLI; SCHEMA= names its file
	@$(VENV_PYTHON) -m tests.bundle_schema $(SCHEMA)

.PHONY: coverage
coverage: setup ## Run every test and measure branch coverage, which takes longer; fails below 90 %
	@$(VENV_PYTHON) -m pytest $(PROCESSES) --cov --cov-report=term-missing:skip-covered \
		--cov-fail-under=$(COVERAGE_MINIMUM) $(ARGS)

.PHONY: test-fast
test-fast: setup ## Run the unit tests only
	@$(VENV_PYTHON) -m pytest tests/unit $(ARGS)

.PHONY: test-lowest
test-lowest: $(LOWEST)/.installed ## Run the unit tests and some integration tests with the lowest versions that pyproject.toml allows
	@$(LOWEST)/bin/python -m pytest tests/unit $(LOWEST_INTEGRATION) $(LOWEST_NOT) $(ARGS)

.PHONY: histories
histories: setup ## Run 500 randomized table histories and the whole support matrix; HISTORIES=, SEED=
	@ICECDC_COMPILED_PLANS=1 ICECDC_HISTORIES=$(HISTORIES) ICECDC_SEED=$(SEED) $(VENV_PYTHON) -m pytest tests/histories -s --timeout 0 $(ARGS)

.PHONY: model
model: setup ## Check the commit protocol in every order of steps with TLC, and that it refuses wrong protocols
	@ICECDC_MODEL=whole $(VENV_PYTHON) -m pytest tests/model -s --timeout 0 $(ARGS)

.PHONY: traces
traces: setup ## Record what the fault tests do, and check at least 100 traces against the model; TRACES=, SEED=
	@rm -rf build/traces
	@ICECDC_COMPILED_PLANS=1 ICECDC_SEED=$(SEED) $(VENV_PYTHON) -m tests.model.traces build/traces $(TRACES)

.PHONY: simulate
simulate: setup ## Run the jobs in 100,000 simulated schedules, and check that wrong code is noticed; SCHEDULES=, SEED=
	@ICECDC_SCHEDULES=$(SCHEDULES) ICECDC_SEED=$(SEED) $(VENV_PYTHON) -m pytest tests/simulation/test_simulation.py -s --timeout 0 $(ARGS)

.PHONY: faults
faults: setup ## Kill drivers 100 times, cut runs off at every request, overload the server; FAULTS=, STORMS=, SEED=
	@ICECDC_COMPILED_PLANS=1 ICECDC_FAULTS=$(FAULTS) ICECDC_STORMS=$(STORMS) ICECDC_CLUSTER_RUNS=$(CLUSTER_RUNS) ICECDC_SEED=$(SEED) \
		$(VENV_PYTHON) -m pytest tests/faults -s --timeout 0 $(ARGS)

.PHONY: soak
soak: setup ## Change tables, sync and inject faults for an hour; MINUTES=, SEED=
	@ICECDC_COMPILED_PLANS=1 ICECDC_SOAK_MINUTES=$(MINUTES) ICECDC_SEED=$(SEED) $(VENV_PYTHON) -m pytest tests/faults/test_soak.py -s --timeout 0 $(ARGS)

.PHONY: monitoring
monitoring: setup ## Check dashboard and alerts with a real Prometheus, from the PATH or the folder ICECDC_PROMETHEUS
	@$(VENV_PYTHON) -m pytest tests/monitoring $(ARGS)

.PHONY: lint
lint: setup ## Check style (notebooks too), types, the contract between packages, and that notebooks have no outputs
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@if ls notebooks/*.ipynb >/dev/null 2>&1; then $(BIN)/nbstripout --verify notebooks/*.ipynb \
		|| { echo "A notebook carries outputs: run 'make notebooks-strip'." >&2; exit 1; }; fi

.PHONY: bench
bench: setup ## Measure reading changes, exporting and syncing
	@$(VENV_PYTHON) -m benchmarks $(ARGS)

.PHONY: docs
docs: setup ## Build the documentation site into build/site, and check every link; ARGS=serve: live preview
	@$(if $(filter serve,$(ARGS)),$(BIN)/mkdocs serve,NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "build/site/index.html")

##@ Change

.PHONY: format
format: setup ## Format code and notebooks
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

.PHONY: notebooks-strip
notebooks-strip: setup ## Remove outputs from the notebooks
	@$(BIN)/nbstripout notebooks/*.ipynb

.PHONY: lock
lock: setup ## Resolve pyproject.toml into requirements.lock again
	@$(BIN)/uv --quiet --no-config pip compile pyproject.toml --extra dev --universal --python-version 3.10 \
		--generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate \
		--custom-compile-command "make lock" $(ARGS) --output-file requirements.lock

.PHONY: audit
audit: setup ## Look the locked packages up in the vulnerability database
	@$(BIN)/pip-audit --requirement requirements.lock --disable-pip $(ARGS)

##@ Release

.PHONY: dist
dist: setup ## Build the wheel and the source distribution into dist/
	@rm -rf dist build/lib build/bdist.* *.egg-info
	@$(VENV_PYTHON) -m build --no-isolation --outdir dist . >/dev/null
	@ls -sh dist

.PHONY: release-check
release-check: dist ## Check dist/: contents, metadata, release notes, a fresh installation; write the SBOM beside it
	@$(BIN)/uv --quiet --no-config tool run twine check --strict dist/*
	@.ci/release-notes >dist/release-notes.md && echo "Release notes: dist/release-notes.md"
	@$(BIN)/uv --quiet --no-config venv --clear --python $(VENV_PYTHON) build/installed
	@$(BIN)/uv --quiet --no-config pip install --python build/installed/bin/python dist/*.whl
	@$(BIN)/uv --quiet --no-config tool run --from cyclonedx-bom cyclonedx-py environment --output-reproducible \
		--pyproject pyproject.toml --output-file dist/icecdc.cdx.json build/installed
	@build/installed/bin/icecdc --version
	@$(VENV_PYTHON) -m pytest tests/unit/project/test_wheel.py tests/integration/project/test_fresh_install.py $(ARGS)

##@ Services

.PHONY: services-up
services-up: setup ## Start the embedded OpenSearch on loopback and leave it running; ARGS=--kafka: a Kafka broker too
	@$(VENV_PYTHON) -m icecdc_core.local up $(ARGS)

.PHONY: services-down
services-down: setup ## Stop what services-up started
	@$(VENV_PYTHON) -m icecdc_core.local down $(ARGS)

##@ Tidy

.PHONY: clean
clean: ## Remove what builds, tests and the demo left here (.venv and the download cache stay)
	@rm -rf build dist *.egg-info htmlcov .coverage .coverage.* coverage.xml .hypothesis .mypy_cache .pytest_cache \
		.ruff_cache artifacts derby.log metastore_db spark-warehouse warehouse
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# Resolved again whenever pyproject.toml changes; a lock of old versions would be out of date at once.
$(LOWEST)/.installed: $(VENV)/.installed pyproject.toml
	@echo "Making $(LOWEST) with the lowest versions"
	@$(BIN)/uv --quiet --no-config venv --clear --python $(VENV_PYTHON) $(LOWEST)
	@$(BIN)/uv --quiet --no-config pip compile pyproject.toml --extra dev --resolution lowest-direct \
		--python $(LOWEST)/bin/python --output-file $(LOWEST)/requirements.txt
	@$(BIN)/uv --quiet --no-config pip sync --python $(LOWEST)/bin/python $(LOWEST)/requirements.txt
	@touch $@

# The two stamps: packages once per lock, the package itself once per pyproject. PYTHON=... chooses the interpreter.
# The lock is complete, so nothing is resolved (--no-deps): pip 23 lets a package that another asks for with an extra
# (coverage[toml]) escape its pin as soon as a newer release is published, and refuses it then. `pip check` stays.
$(VENV)/.locked: requirements.lock | .ci/prerequisites
	@python=$$(.ci/prerequisites) && echo "Making $(VENV) with $$python" && "$$python" -m venv --clear $(VENV)
	@echo "Installing the locked packages (about 700 MB the first time, most of it Spark)"
	@if [ -t 1 ]; then set -o pipefail; \
		$(PIP) install --no-deps --require-hashes --requirement requirements.lock | awk \
			'/^Collecting/ {printf "\r%4d  %-60s", ++n, $$2; fflush()} /^(Building|Installing)/ {printf "\n%.60s ...", $$0; fflush()} END {print ""}'; \
	else $(PIP) install --quiet --no-deps --require-hashes --requirement requirements.lock; fi
	@$(PIP) check >/dev/null || { $(PIP) check; exit 1; }
	@touch $@

# The packages of the lock with another pyspark; `pip check` would name exactly that one.
$(SPARK40)/.installed: requirements.lock pyproject.toml | .ci/prerequisites
	@python=$$(.ci/prerequisites) && echo "Making $(SPARK40) with $$python" && "$$python" -m venv --clear $(SPARK40)
	@awk '/^[^ ]/ {skip = /^pyspark==/} !skip' requirements.lock > $(SPARK40)/requirements.lock
	@$(SPARK40)/bin/python -m pip --disable-pip-version-check --no-input install --quiet --no-deps --require-hashes \
		--requirement $(SPARK40)/requirements.lock
	@$(SPARK40)/bin/python -m pip --disable-pip-version-check --no-input install --quiet --no-deps pyspark==$(SPARK40_VERSION)
	@PYTHONWARNINGS=ignore $(SPARK40)/bin/python -m pip --disable-pip-version-check --no-input install --quiet --no-deps \
		--no-build-isolation --editable .
	@touch $@

$(VENV)/.installed: $(VENV)/.locked pyproject.toml
	@PYTHONWARNINGS=ignore $(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

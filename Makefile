# icecdc: `make` alone shows what there is. Works with GNU make 3.81 and later (the one of macOS).

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
VENV_PYTHON := $(BIN)/python
PIP := -m pip --disable-pip-version-check --no-input
# The lock is complete, so nothing is resolved (--no-deps): pip 23 lets a package that another asks for with an extra
# (coverage[toml]) escape its pin as soon as a newer release is published, and refuses it then.
# Python compiles the modules that it imports: compiling all of them takes a quarter of the time.
INSTALL := $(PIP) install --no-compile --no-deps
# The environments with the lowest versions of pyproject.toml and with the other line of Spark.
LOWEST := .venv-lowest
SPARK40 := .venv-spark40
SPARK40_VERSION := 4.0.5
# Extra arguments for pytest, the demo, JupyterLab and the benchmarks, for example: make test ARGS="-k carryover"
ARGS ?=
# Containers often set it. Each process would compile the package, and pytest rewrite the tests, again and again.
unexport PYTHONDONTWRITEBYTECODE
# How many processes run the tests, each with a Spark of its own. Three keep two cores busy: tests wait a lot.
WORKERS ?= 3
# A file's tests share what its fixtures made, so they stay together; files go in the order of testpaths, slow ones first.
PROCESSES := --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
# Which random samples the suites below choose, and how many or how long.
SEED ?= 20261121
HISTORIES ?= 500
FAULTS ?= 100
CLUSTER_RUNS ?= 10
TRACES ?= 100
SCHEDULES ?= 100000
EXAMPLES ?= 300
MINUTES ?= 60

# What `make test SUITE=...` runs; `make more` describes each.
SUITE ?= default
PYTEST := $(VENV_PYTHON) -m pytest
SAMPLES := ICECDC_COMPILED_PLANS=1 ICECDC_SEED=$(SEED)
suite-default = $(PYTEST) -m "not tools and not long" $(PROCESSES)
suite-unit = $(PYTEST) tests/unit
suite-long = $(PYTEST) -m long
suite-tools = $(PYTEST) tests/integration -m tools
suite-coverage = $(PYTEST) $(PROCESSES) --cov --cov-report=term-missing:skip-covered --cov-fail-under=90
suite-histories = $(SAMPLES) ICECDC_HISTORIES=$(HISTORIES) $(PYTEST) tests/histories -s --timeout 0
suite-fuzz = $(SAMPLES) ICECDC_FUZZ=$(EXAMPLES) $(PYTEST) $$(grep -rl ICECDC_FUZZ tests --include="test_*.py") -s --timeout 0
suite-faults = $(SAMPLES) ICECDC_FAULTS=$(FAULTS) ICECDC_CLUSTER_RUNS=$(CLUSTER_RUNS) \
	$(PYTEST) tests/faults -s --timeout 0
suite-soak = $(SAMPLES) ICECDC_SOAK_MINUTES=$(MINUTES) $(PYTEST) tests/faults/test_soak.py -s --timeout 0
suite-model = ICECDC_MODEL=whole $(PYTEST) tests/model -s --timeout 0
suite-traces = $(SAMPLES) ICECDC_LIVES=$(TRACES) $(PYTEST) tests/faults/test_recorded_runs.py -s --timeout 0
suite-simulate = ICECDC_SCHEDULES=$(SCHEDULES) ICECDC_SEED=$(SEED) $(PYTEST) tests/simulation/test_simulation.py -s --timeout 0
suite-comet = ICECDC_ACCELERATOR=comet ICECDC_COMPILED_PLANS=1 ICECDC_HISTORIES=$(HISTORIES) $(PYTEST) $(PROCESSES) --timeout 0 \
	tests/histories tests/integration/changes tests/integration/jobs/test_sync.py
suite-schedulers = PATH="$(CURDIR)/$(BIN):$$PATH" $(PYTEST) tests/schedulers
suite-monitoring = $(PYTEST) tests/monitoring
suite-spark40 = ICECDC_HISTORIES=0 $(SPARK40)/bin/python -m pytest -m "not tools and not long" $(PROCESSES) \
	tests/histories/test_support_matrix.py tests/integration tests/unit
# The text of the schema that is shipped depends on the release of pydantic that wrote it.
suite-lowest = $(LOWEST)/bin/python -m pytest tests/unit tests/integration/jobs/test_sync.py tests/integration/jobs/test_validate.py \
	tests/integration/jobs/test_dead_letters.py tests/integration/ingest/test_ingest.py \
	--deselect tests/unit/project/test_docs.py::it_ships_the_schema_as_the_code_makes_it
needs-spark40 = $(SPARK40)/.installed
needs-lowest = $(LOWEST)/.installed

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "; printf "Usage: make <target> [ARGS=\"...\"]\n\n"} \
	/^[a-z-]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: setup ## Export, change, sync and validate real tables; KAFKA=1: start from Kafka; ARGS=--keep: leave OpenSearch running
	@$(VENV_PYTHON) -m demo$(if $(KAFKA),.kafka) $(ARGS)

.PHONY: test
test: $(or $(needs-$(SUITE)),setup) ## Run the tests, in WORKERS processes of about 4 GiB each; SUITE=unit: the fast ones
	@$(or $(suite-$(SUITE)),$(error there is no suite $(SUITE); `make more` lists them)) $(ARGS)

.PHONY: lab
lab: setup ## JupyterLab with the notebooks, and an OpenSearch on loopback that stops when it ends
	@$(BIN)/icecdc services up
	@trap '$(BIN)/icecdc services down' EXIT; PATH="$(CURDIR)/$(BIN):$$PATH" \
		$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) --ServerApp.ip=127.0.0.1 \
		--LabApp.default_url=/lab/tree/notebooks/00_setup.ipynb $(ARGS)

.PHONY: lint
lint: setup ## Check style, types, imports between packages, and that notebooks have no outputs
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/nbstripout --verify notebooks/*.ipynb || { echo "A notebook has outputs: run 'make format'." >&2; exit 1; }

.PHONY: bench
bench: setup ## Measure reading changes, exporting and syncing
	@$(VENV_PYTHON) -m benchmarks $(ARGS)

.PHONY: docs
docs: setup ## Build the documentation site into build/site, and check every link; ARGS=serve: live preview
	@$(if $(filter serve,$(ARGS)),$(BIN)/mkdocs serve,NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "build/site/index.html")

.PHONY: more
more: ## Show the other targets, and the suites of tests
	@awk 'BEGIN {FS = ":.*#@ "} /^[a-z-]+:.*#@ / {printf "  make %-22s %s\n", $$1, $$2} \
	/^#@ / {sub("#@ ", ""); split($$0, part, ": "); printf "  make test SUITE=%-11s %s\n", part[1], part[2]}' $(firstword $(MAKEFILE_LIST))

#@ unit: the unit tests
#@ long: tests that `make test` leaves out because they take long
#@ tools: the embedded services and the benchmarks
#@ coverage: all tests, with branch coverage of at least 90 %
#@ lowest: unit tests and jobs with the lowest versions that pyproject.toml allows
#@ spark40: support matrix, integration and unit tests on Spark 4.0 with Iceberg 1.11
#@ comet: random table histories, support matrix and syncs with Apache DataFusion Comet (HISTORIES=)
#@ histories: 500 random table histories and the whole support matrix (HISTORIES=, SEED=)
#@ fuzz: 300 examples of each generator: tables of other writers, documents, specs, records, answers (EXAMPLES=, SEED=)
#@ faults: 100 kills, each fault at each kind of request (FAULTS=, CLUSTER_RUNS=, SEED=)
#@ soak: change tables and sync for an hour (MINUTES=, SEED=)
#@ model: the commit protocol in every order of steps
#@ traces: records random lives of an index and checks them against the model (TRACES=, SEED=)
#@ simulate: the jobs in 100,000 simulated schedules (SCHEDULES=, SEED=)
#@ schedulers: the examples in the real Airflow and Dagster, which uv downloads
#@ monitoring: dashboard and alerts with promtool, from the PATH or the folder ICECDC_PROMETHEUS

.PHONY: fuzz
fuzz: #@ run the generators and the random histories, for hours
	@$(MAKE) --no-print-directory test SUITE=fuzz
	@$(MAKE) --no-print-directory test SUITE=histories

.PHONY: setup
setup: $(VENV)/.installed #@ make .venv with every package of requirements.lock (done once)

.PHONY: format
format: setup #@ format code and notebooks, and strip the notebooks' outputs
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .
	@$(BIN)/nbstripout notebooks/*.ipynb

.PHONY: lock
lock: setup #@ resolve pyproject.toml into requirements.lock again
	@$(BIN)/uv --quiet --no-config pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate \
		--custom-compile-command "make lock" $(ARGS) --output-file requirements.lock

.PHONY: audit
audit: setup #@ look the locked packages up in the vulnerability database
	@$(BIN)/pip-audit --requirement requirements.lock --disable-pip $(ARGS)

.PHONY: dist
dist: setup #@ build wheel and source distribution into dist/; .ci/check-release checks them
	@rm -rf dist build/lib build/bdist.* *.egg-info
	@$(VENV_PYTHON) -m build --no-isolation --outdir dist . >/dev/null
	@ls -sh dist

.PHONY: clean
clean: #@ remove what builds, tests and the demo left here (.venv and the download cache stay)
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
# Nothing is resolved, but `pip check` stays.
$(VENV)/.locked: requirements.lock | .ci/prerequisites
	@python=$$(.ci/prerequisites) && echo "Making $(VENV) with $$python" && "$$python" -m venv --clear $(VENV)
	@echo "Installing the locked packages (about 700 MB the first time, most of it Spark)"
	@if [ -t 1 ]; then set -o pipefail; \
		$(VENV_PYTHON) $(INSTALL) --require-hashes --requirement requirements.lock | awk \
			'/^Collecting/ {printf "\r%4d  %-60s", ++n, $$2; fflush()} /^(Building|Installing)/ {printf "\n%.60s ...", $$0; fflush()} END {print ""}'; \
	else $(VENV_PYTHON) $(INSTALL) --quiet --require-hashes --requirement requirements.lock; fi
	@$(VENV_PYTHON) $(PIP) check >/dev/null || { $(VENV_PYTHON) $(PIP) check; exit 1; }
	@touch $@

# The packages of the lock with another pyspark; `pip check` would name exactly that one.
$(SPARK40)/.installed: requirements.lock pyproject.toml | .ci/prerequisites
	@python=$$(.ci/prerequisites) && echo "Making $(SPARK40) with $$python" && "$$python" -m venv --clear $(SPARK40)
	@awk '/^[^ ]/ {skip = /^pyspark==/} !skip' requirements.lock > $(SPARK40)/requirements.lock
	@$(SPARK40)/bin/python $(INSTALL) --quiet --require-hashes --requirement $(SPARK40)/requirements.lock
	@$(SPARK40)/bin/python $(INSTALL) --quiet pyspark==$(SPARK40_VERSION)
	@PYTHONWARNINGS=ignore $(SPARK40)/bin/python $(INSTALL) --quiet --no-build-isolation --editable .
	@touch $@

$(VENV)/.installed: $(VENV)/.locked pyproject.toml
	@PYTHONWARNINGS=ignore $(VENV_PYTHON) $(INSTALL) --quiet --no-build-isolation --editable .
	@touch $@

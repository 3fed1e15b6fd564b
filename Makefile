# Every target sets up what it needs by itself. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCK = $(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-annotate --no-emit-index-url --python-version 3.11
export OMP_NUM_THREADS ?= 1
# Compiled once, not again by each of the hundreds of processes that tests start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: help setup run demo test fuzz chaos chaos-long e2e e2e-large control-plane lint docs docs-serve lock image image-check bench bench-check bench-bars clean

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## install Gangline and its tools into .venv

$(STAMP): pyproject.toml requirements/dev.txt requirements/uv.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements/uv.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --no-deps --compile-bytecode -r requirements/dev.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-build-isolation --no-deps --editable .
	@touch $@

run: setup ## schedule the quick-start workload on the embedded simulator
	$(BIN)/gangline simulate examples/quickstart

demo: setup ## schedule a workload on 32 simulated nodes, and show them live in a browser
	$(BIN)/gangline simulate examples/demo --profile gpu-scheduler --ui

test: setup ## unit tests, or those of a room of the framework: ROOM=queueing
	PYTHONHASHSEED=0 $(BIN)/pytest $(if $(ROOM),framework/tests/$(ROOM),--processes auto)

fuzz: setup ## odd inputs of every kind, for an hour or MINUTES=5; what fails is kept in .fuzz/
	$(BIN)/python -m gangline_fuzz run --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED))

chaos: setup control-plane ## faults on a real control plane for SECONDS=480 or FAULTS=500 (SEED=1), judged by the history of etcd; kept in .chaos/
	$(BIN)/python -m gangline_chaos run $(if $(FAULTS),--faults $(FAULTS),--seconds $(or $(SECONDS),480)) $(if $(SEED),--seed $(SEED))

chaos-long: ## the same with 5,000 faults, in hours
	$(MAKE) chaos FAULTS=5000

control-plane: setup ## build etcd, kube-apiserver, kube-scheduler, kube-controller-manager, kwok and helm (needs Go)
	$(BIN)/python -m gangline_e2e build

e2e: setup control-plane ## end-to-end tests on a real control plane
	$(BIN)/pytest e2e/tests --ignore e2e/tests/unit -m "not alone" -n 2 --dist loadfile
	$(BIN)/pytest e2e/tests --ignore e2e/tests/unit -m alone

e2e-large: setup control-plane ## a day of 20,000 pods on 5,000 nodes, for an hour or MINUTES=20 (NODES=, PODS=, SEED=)
	GANGLINE_DAY_MINUTES=$(or $(MINUTES),60) GANGLINE_DAY_NODES=$(or $(NODES),5000) GANGLINE_DAY_PODS=$(or $(PODS),20000) \
	  GANGLINE_DAY_SEED=$(SEED) $(BIN)/pytest -s e2e/tests/test_large_cluster.py

lint: setup ## formatting, lint, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --explicit-package-bases framework/tests plugins/tests profiles/tests webhook/tests agent/tests e2e/tests docs/tests docs/hooks.py benchmarks charts/image charts/tests examples
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

docs: setup ## build the documentation as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

docs-serve: setup ## the documentation at http://127.0.0.1:8000 (PORT=), built again when a page changes
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr 127.0.0.1:$(or $(PORT),8000)

image-check: setup ## build and run what the container image holds, without Docker
	$(BIN)/python charts/image/image_check.py

image: setup ## build the container image, its SBOM and its provenance, in dist/; needs Docker (TAG=, BASE=IMAGE@sha256:DIGEST)
	$(BIN)/python charts/image/make_image.py --tag "$(or $(TAG),gangline)" --base "$(BASE)"

lock: setup ## lock the packages named in pyproject.toml: for developers, for the image, for building its wheel, and uv
	$(LOCK) --group dev -o requirements/dev.txt pyproject.toml
	$(LOCK) --extra agent -c requirements/dev.txt -o requirements/runtime.txt pyproject.toml
	$(LOCK) --group build -c requirements/dev.txt -o requirements/build.txt
	$(LOCK) --group uv -o requirements/uv.txt

bench: setup control-plane ## the benchmarks: cycles per second, and side by side with kube-scheduler
	$(BIN)/python benchmarks/cycle.py
	$(BIN)/python benchmarks/vs_kube_scheduler.py

bench-check: setup ## fail if Gangline has become more than a tenth more expensive than benchmarks/bars.json says; half a minute
	$(BIN)/python benchmarks/bench_check.py

bench-bars: setup ## take what Gangline costs now as the new bars
	$(BIN)/python benchmarks/bench_check.py --renew

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache site dist

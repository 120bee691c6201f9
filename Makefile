# Two commands do everything: `make run` and `make test`.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Once, instead of in each process where the environment has Python keep nothing.
COMPILE := $(BIN)/python -m compileall -q serve_app deployments clients/python/gen_serve_client benchmarks/load/gen_serve_bench
# pytest keeps the tests as it has compiled them, also where the environment has Python keep nothing.
test test-newest test-slow: export PYTHONDONTWRITEBYTECODE =
# Tests in one process wait for half of their time.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
TIMES  := .pytest_cache/times.jsonl
PYTEST := $(BIN)/python -m pytest --times $(TIMES)
PAGES  := tests/e2e/pages
# Pages apart: a browser keeps the event loop of its process. Whole services one after the other.
define RUN
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "$(1) and not whole_service" --ignore $(PAGES) tests
	$(PYTEST) -n 2 --dist worksteal -m "$(1)" $(PAGES)
	$(PYTEST) -m "$(1) and whole_service" --ignore $(PAGES) tests/e2e tests/chaos
endef
NEWEST  = $(shell for each in python3.14 python3.13 python3.12; do $$each -c '' 2> /dev/null && echo $$each && break; done)
GPU_CHECK ?= build/gpu-check
PROMPT ?= a small red star in the top left on a dark blue background

.PHONY: help run test test-newest test-slow test-all promises conformance check chaos chaos-cluster attack bench bench-smoke gpu-check dist lock audit openapi figures settings clean

help:  ## Show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(VENV)/.run: pyproject.toml clients/python/pyproject.toml benchmarks/load/pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e . -e clients/python -e benchmarks/load
	@$(COMPILE)
	@touch $@

$(VENV)/.dev: pyproject.toml clients/python/pyproject.toml benchmarks/load/pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' -e clients/python -e benchmarks/load
	@$(COMPILE)
	@touch $@ $(VENV)/.run

run: $(VENV)/.run  ## Install, serve on 127.0.0.1:8000, make a first image, serve on until Ctrl-C
	@exec $(BIN)/gen-serve up --config configs/local.yaml --first-image "$(PROMPT)"

test: $(VENV)/.dev  ## Install and run the tests: rules, the API, pages, one whole service and kills of its processes
	@rm -f $(TIMES)
	$(call RUN,not slow)

test-newest: $(VENV)/.dev  ## Run tests/unit on the newest Python of this machine, if that is newer than .venv
	@if $(BIN)/python -c 'import sys; sys.exit("python3.%d" % sys.version_info[1] >= "$(NEWEST)")'; then \
	  $(MAKE) --no-print-directory PYTHON=$(NEWEST) VENV=build/newest build/newest/.dev && \
	  build/newest/bin/python -m pytest -n $(WORKERS) -m "not slow" tests/unit; \
	else echo "test-newest is skipped: no Python of this machine is newer than that of $(VENV)"; fi

test-slow: $(VENV)/.dev  ## The other tests: many examples, every document, benchmarks, several nodes
	$(call RUN,slow)

test-all: test test-slow  ## All tests, and a table of the time that they take
	@PYTHONPATH=tests $(BIN)/python -m support.timing $(TIMES)

promises: $(VENV)/.dev  ## List the sentences of the interface that tests check
	@$(BIN)/python -m pytest -p no:terminal -o addopts= --promises tests/api tests/conformance

conformance: $(VENV)/.dev  ## Check URL=... with KEY=..., else a service started as by `make run`, by the interface
	$(BIN)/python -m pytest $(if $(URL),--server $(URL) --server-key $(KEY),--start) $(CONFORMANCE) tests/conformance

check: $(VENV)/.dev  ## Lint, format, types, direction of imports, OpenAPI documents
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/openapi-spec-validator openapi.json openapi-admin.json

chaos: $(VENV)/.dev  ## Break everything under load for ten minutes, then check every promise
	PYTHONPATH=tests $(BIN)/python -m chaos $(CHAOS)

chaos-cluster: $(VENV)/.dev  ## The same on three nodes, which die, go in order and come; ten minutes
	PYTHONPATH=tests $(BIN)/python -m chaos --cluster $(CHAOS)

attack: $(VENV)/.dev  ## Attack URL=..., else a service of its own, in thousands of ways, while a bystander is to be served
	PYTHONPATH=tests $(BIN)/python -m attack $(if $(URL),--url $(URL)) $(ATTACK)

bench: $(VENV)/.dev  ## Run all benchmarks, into a folder by date and machine
	$(BIN)/python -m benchmarks run

bench-smoke: $(VENV)/.dev  ## Run every part of every benchmark with tiny counts; but for peers part of make test-all
	$(BIN)/python -m pytest tests/e2e/benchmarks
	$(BIN)/python -m benchmarks smoke peers

gpu-check: $(VENV)/.run  ## Check and measure models on this machine's GPU; with CHECKPOINT=... that one
	$(BIN)/python -m benchmarks.gpu --out $(GPU_CHECK) $(addprefix --checkpoint ,$(CHECKPOINT))

dist: $(VENV)/.dev  ## Build wheels and source distributions of the service, the client and the load generator, into dist/
	@for folder in . clients/python benchmarks/load; do \
	  $(BIN)/uv build -q --no-build-isolation --python $(BIN)/python --out-dir dist $$folder || exit; done

lock: $(VENV)/.dev  ## Write requirements.lock anew, every dependency with its hashes; those of published clients and of peers, too
	$(BIN)/uv pip compile -q pyproject.toml -c constraints.txt --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --no-header --no-emit-package gen-serve-client -o requirements.lock
	$(BIN)/uv pip compile -q requirements-gpu.in -c constraints.txt --no-deps --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --no-header -o requirements-gpu.lock
	@for client in blackforest litellm openai openapi openid; do \
	  $(BIN)/uv pip compile -q tests/clients/$$client/requirements.in --universal --python-version 3.11 \
	    --generate-hashes --no-annotate --no-header -o tests/clients/$$client/requirements.txt; done
	$(BIN)/uv pip compile -q benchmarks/peers/requirements.in -c constraints.txt --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --no-header -o benchmarks/peers/requirements.txt

audit: $(VENV)/.dev  ## Look all pinned versions up among known vulnerabilities (asks the internet)
	$(BIN)/uv tool run pip-audit --disable-pip --no-deps -r constraints.txt

openapi: $(VENV)/.dev  ## Write openapi.json anew, and the types that the clients have of it
	$(BIN)/gen-serve openapi --config configs/local.yaml > openapi.json
	$(BIN)/gen-serve openapi --config configs/local.yaml --admin > openapi-admin.json
	$(BIN)/python clients/python/generate_types.py

figures: $(VENV)/.dev  ## Write the table of metrics in docs/metrics.md from their declarations
	$(BIN)/python -m serve_app.metrics.series

settings: $(VENV)/.dev  ## Write comments of configs/local.yaml, the table and the JSON Schema of settings anew, from their types
	$(BIN)/python -m serve_app.config.reference

clean:  ## Remove the virtual environment and caches, never data
	rm -rf $(VENV) .clients .peers .pytest_cache .ruff_cache .hypothesis build dist *.egg-info clients/python/*.egg-info benchmarks/load/*.egg-info

# Everything a developer or an operator of one machine types. `make` alone lists it.
SHELL := bash
BIN := .venv/bin
.DEFAULT_GOAL := help
# Where it is set, each of the many processes of the tests compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help install up down clean-demo check lint types rules test test-quick test-full fuzz mutations bench engines generate clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## Make .venv with every dependency (pinned by hash) and all console scripts
	@scripts/install

up: install ## Start Docker and Compose, an authority, a scheduler, an agent, a gateway and a first workload
	@$(BIN)/persys up

down: install ## Stop what `make up` started; workloads go on
	@$(BIN)/persys down

clean-demo: install ## Remove what `make up` deployed
	@$(BIN)/persys clean-demo

check: lint types rules ## Format, lint, types and house rules, in seconds

lint: install
	$(BIN)/ruff format --check . scripts/engines scripts/compose scripts/permissions scripts/libvirt scripts/screenshots scripts/mutate scripts/guest/tiny scripts/guest/cloud
	$(BIN)/ruff check . scripts/engines scripts/compose scripts/permissions scripts/libvirt scripts/screenshots scripts/mutate scripts/guest/tiny scripts/guest/cloud

types: install
	$(BIN)/mypy

rules: install
	$(BIN)/pytest tests/tidy -q --durations=1

test: ## Checks, then all tests against real engines except those marked `full`
	@$(MAKE) --no-print-directory --jobs 2 --output-sync check engines
	@scripts/test

test-quick: check ## Checks, unit tests and a sample of the property tests, in 90 seconds
	$(BIN)/pytest tests/unit tests/properties --hypothesis-profile=quick --durations=5

test-full: ## Everything `make test` runs and the tests marked `full`, with a Vault built once
	@$(MAKE) --no-print-directory --jobs 2 --output-sync check engines
	@scripts/vault/build
	@scripts/test --full

fuzz: install ## Fuzz for an hour, or PERSYS_FUZZ_SECONDS per fuzzer, from a new seed
	@PERSYS_FUZZ_SECONDS=$${PERSYS_FUZZ_SECONDS:-400} PERSYS_FUZZ_SEED=$${PERSYS_FUZZ_SEED:-$$(date +%s)} \
	  $(BIN)/pytest tests/fuzz --timeout 0

mutations: install ## Run the test suites against each mutation of tests/mutations/list.json
	$(BIN)/python scripts/mutate run

bench: install engines ## Measure against the floors of this very machine
	$(BIN)/python -m bench

engines: install ## Install and start what the tests need: Docker, Compose, libvirt, etcd, CoreDNS and small tools
	@$(BIN)/python scripts/engines

generate: install ## Write the protobuf code anew from proto/, and the tables of permissions
	scripts/generate
	$(BIN)/python scripts/permissions --write

clean: ## Remove the virtual environment and all caches
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

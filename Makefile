# Everything a developer or an operator of one machine types. `make` alone lists it.
SHELL := bash
BIN := .venv/bin
.DEFAULT_GOAL := help
# Where it is set, each of the many processes of the tests compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help install deps build build-linux up down clean-demo dev-certs check fmt lint types rules test test-quick \
  test-full fuzz mutations bench engines generate proto docker-build docker-push clean
# Prefix and tag of the images of `make docker-build` and `make docker-push`.
IMAGES ?= persys
TAG ?= latest
SCRIPTS := scripts/engines scripts/compose scripts/permissions scripts/libvirt scripts/screenshots scripts/mutate \
  scripts/guest/tiny scripts/guest/cloud

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## Make .venv with every dependency (pinned by hash) and all console scripts
	@scripts/install

deps: install ## The same as `make install`

build: install ## Build the wheel in dist/, and put the commands of .venv into bin/
	@scripts/build

build-linux: install ## Pack wheels of Persys and of all that it needs for a Linux machine without a package index
	@scripts/build --with-dependencies

dev-certs: install ## Create certificates of every role for development in dev/certs, valid for 30 days
	@scripts/dev-certs

up: install ## Start Docker and Compose, an authority, a scheduler, an agent, a gateway and a first workload
	@$(BIN)/persys up

down: install ## Stop what `make up` started; workloads go on
	@$(BIN)/persys down

clean-demo: install ## Remove what `make up` deployed
	@$(BIN)/persys clean-demo

check: lint types rules ## Format, lint, types and house rules, in seconds

fmt: install ## Format the code
	$(BIN)/ruff format . $(SCRIPTS)
	$(BIN)/ruff check --fix . $(SCRIPTS)

lint: install
	$(BIN)/ruff format --check . $(SCRIPTS)
	$(BIN)/ruff check . $(SCRIPTS)

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

proto: install ## Generate the protobuf code from proto/
	scripts/generate

generate: proto ## Generate the protobuf code and the tables of permissions
	$(BIN)/python scripts/permissions --write

docker-build: install ## Build the images of all components: IMAGES/compute-agent:TAG and so on
	@scripts/images build "$(IMAGES)" "$(TAG)"

docker-push: ## Push the images that `make docker-build` built
	@scripts/images push "$(IMAGES)" "$(TAG)"

clean: ## Remove the virtual environment and all caches
	rm -rf bin dev .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# Commands for developers and for operators of a single host. Run `make` to list them.
SHELL := bash
BIN := .venv/bin
.DEFAULT_GOAL := help
# If it is set, each process that a test starts compiles all modules that it imports.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help install deps build build-linux deb release up down clean-demo dev-certs check fmt lint types rules dashboard test test-quick \
  test-full test-lowest test-newest fuzz mutations bench engines generate proto docs docker-build docker-push clean
# Prefix and tag of the images of `make docker-build` and `make docker-push`.
IMAGES ?= persys
TAG ?= latest
SCRIPTS := scripts/engines scripts/compose scripts/permissions scripts/libvirt scripts/screenshots scripts/mutate \
  scripts/guest/tiny scripts/guest/cloud scripts/mkdocs/hooks.py scripts/rest-types scripts/sbom scripts/schema

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## Create .venv with all dependencies (pinned by hash) and console scripts, and build the dashboard
	@scripts/install
	@scripts/dashboard

deps: install ## Alias of `make install`

build: install ## Build the wheel in dist/, and link the commands of .venv into bin/
	@scripts/build

deb: install ## Build the Debian packages of all components in dist/
	@scripts/deb

release: install ## Build wheel, source archive, Debian packages, SBOM and checksums in dist/
	@scripts/release

build-linux: install ## Pack the wheels of Persys and its dependencies for a Linux host without a package index
	@scripts/build --with-dependencies

dev-certs: install ## Create certificates of every role for development in dev/certs, valid for 30 days
	@scripts/dev-certs

up: install ## Start Docker and Compose, a CA, a scheduler, an agent, a gateway and a first workload
	@$(BIN)/persys up

down: install ## Stop what `make up` started; workloads continue to run
	@$(BIN)/persys down

clean-demo: install ## Remove what `make up` deployed
	@$(BIN)/persys clean-demo

check: lint types rules dashboard ## Check format, lint, types, repository rules and the dashboard

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

dashboard: install ## Check the types of the dashboard and run its unit tests
	@scripts/dashboard check

test: ## Run checks, then all tests against real engines except those marked `full`
	@$(MAKE) --no-print-directory --jobs 2 --output-sync check engines
	@scripts/test

test-quick: check ## Run checks, unit tests and a sample of the property tests (about 90 seconds)
	$(BIN)/pytest tests/unit tests/properties --hypothesis-profile=quick --durations=5

test-full: ## Run `make test`, the tests marked `full`, and `make test-newest`; builds Vault once
	@$(MAKE) --no-print-directory --jobs 2 --output-sync check engines
	@scripts/vault/build
	@scripts/test --full
	@scripts/test-newest

test-newest: install ## Run unit and property tests with the newest supported Python that is installed
	@scripts/test-newest

test-lowest: install ## Run unit and property tests with the lowest versions that pyproject.toml allows
	@scripts/test-lowest

fuzz: install ## Fuzz for an hour, or PERSYS_FUZZ_SECONDS per fuzzer, from a new seed
	@PERSYS_FUZZ_SECONDS=$${PERSYS_FUZZ_SECONDS:-400} PERSYS_FUZZ_SEED=$${PERSYS_FUZZ_SEED:-$$(date +%s)} \
	  $(BIN)/pytest tests/fuzz --timeout 0

mutations: install ## Run the test suites against each mutation of tests/mutations/list.json
	$(BIN)/python scripts/mutate run

bench: install engines ## Run the benchmarks and compare them with reference measurements on this host
	$(BIN)/python -m bench

engines: install ## Install and start the engines of the tests: Docker, Compose, libvirt, etcd, CoreDNS and command-line tools
	@$(BIN)/python scripts/engines

proto: install ## Generate the protobuf code from proto/
	scripts/generate

generate: proto ## Generate protobuf code, permission tables, schema and reference of spec files, types of the dashboard
	$(BIN)/python scripts/permissions --write
	$(BIN)/python scripts/schema --write
	$(BIN)/python scripts/rest-types --write

docs: install ## Build the documentation site in site/
	@scripts/mkdocs/build

docker-build: install ## Build the images of all components: IMAGES/compute-agent:TAG and so on
	@scripts/images build "$(IMAGES)" "$(TAG)"

docker-push: ## Push the images that `make docker-build` built
	@scripts/images push "$(IMAGES)" "$(TAG)"

clean: ## Remove the virtual environment and all caches
	rm -rf bin dev site .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist dashboard/node_modules \
	  src/persys/gateway/dashboard/static
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

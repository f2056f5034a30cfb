# Every target sets up what it needs by itself: Python 3.11+, make and git are enough.
# Another interpreter: make PYTHON=/path/to/python3.12 test

SHELL := /bin/sh
.DEFAULT_GOAL := help

BIN := .venv/bin
# One worker more than processors: many tests wait for a process or a deadline.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist worksteal
export PYTHON PYTHONNOUSERSITE := 1
# A caller's PYTHONPATH or MYPYPATH would let other copies of a package in. Without compiled files pytest would rewrite all
# tests at each start.
unexport PYTHONPATH PYTHONHOME MYPYPATH PYTHONDONTWRITEBYTECODE

ENVIRONMENT := scripts/python scripts/environment.py

help: ## this list
	@echo "licet: tools declare, a manifest allows, a call holds the overlap"
	@echo
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-22s %s\n", $$1, $$2}'

demo: ## check, explain, surface and diff on a small agent
	@$(ENVIRONMENT) .venv-demo requirements-demo.lock
	@PATH="$(CURDIR)/.venv-demo/bin:$$PATH" sh examples/demo.sh

# As an ordinary user; what another program has put there under that name is left alone.
PROGRAM := $(HOME)/.local/lib/licet
COMMAND := $(HOME)/.local/bin/licet

install: ## licet for you, without this checkout: in ~/.local/lib/licet, and the command in ~/.local/bin
	@mkdir -p "$(HOME)/.local/lib" "$(HOME)/.local/bin"
	@if [ -e "$(COMMAND)" ] && [ "$$(readlink "$(COMMAND)")" != "$(PROGRAM)/bin/licet" ]; then \
		echo "$(COMMAND) is there, and is not of \`make install\`: remove it first" >&2; exit 1; fi
	@$(ENVIRONMENT) "$(PROGRAM)" requirements-demo.lock --copy
	@ln -sfn "$(PROGRAM)/bin/licet" "$(COMMAND)"
	@echo "· $(COMMAND)"
	@case ":$$PATH:" in *":$(HOME)/.local/bin:"*) ;; *) echo '· not on your PATH yet: export PATH="$$HOME/.local/bin:$$PATH"';; esac

transcripts: .venv ## play the example agents, and write what happened
	@$(BIN)/python examples/transcripts.py

test: .venv ## lint, tests and the built wheel: what must hold before a commit
	@$(MAKE) --no-print-directory -j2 lint compiled-tests
	@echo "· tests (15 examples for each property, and a sample of the cases that cost most; all: make test-all)"
	@echo "· skipped here: what needs official SDKs, public MCP servers or agent frameworks (make test-peers)"
	@$(PYTEST)

check: lint ## the inner loop: lint, and the tests of what decides (core, guard, spec)
	@$(PYTEST) tests/core tests/guard tests/spec tests/test_architecture.py

test-all: lint ## everything: long properties, every case and mutant, an ordinary user, other interpreters, peers
	@echo "· tests, with long properties and every case"
	@LICET_LONG=1 $(PYTEST)
	@$(MAKE) --no-print-directory test-user mutants test-interpreters test-peers

test-user: .venv ## the tests as an ordinary user, where root runs this
	@echo "· tests, as an ordinary user"
	@$(BIN)/python scripts/test_as_user.py

test-interpreters: .venv ## the tests on every other Python that is installed, each in an environment of its own
	@scripts/test-interpreters 3.11 3.12 3.13

test-peers: .venv ## public MCP servers, official SDKs, agent frameworks, a suite of hijacked agents, and other tools where Node is
	@scripts/test-peers

# Each worker of pytest would compile all tests of a fresh clone by itself; lint leaves a processor free for it.
compiled-tests: .venv
	@$(BIN)/pytest --collect-only -qq >/dev/null 2>&1 || true # what is wrong with them is said when they run

lint: .venv ## formatting, lint rules, tools against their declarations, examples of policies, types and import directions
	@echo "· formatting and lint rules"
	@$(BIN)/ruff format --quiet --check --diff .
	@$(BIN)/ruff check --quiet .
	@echo "· tools against their declarations"
	@report=$$($(BIN)/licet lint examples src/licet/tools 2>&1) || { echo "$$report"; exit 1; }
	@echo "· examples of policies"
	@report=$$($(BIN)/licet test examples/coding examples/inbox examples/payments examples/research examples/weather 2>&1) || { echo "$$report"; exit 1; }
	@echo "· types"
	@$(BIN)/mypy --no-error-summary
	@echo "· import directions"
	@report=$$($(BIN)/lint-imports --no-logo 2>&1) || { echo "$$report"; exit 1; }

format: .venv ## rewrite the sources the way lint wants them
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

mutants: .venv ## change core/ one operator at a time: every change must fail a test
	@$(BIN)/python scripts/mutants.py

mutants-sample: .venv ## the same on a sample of the modules that decide
	@$(BIN)/python scripts/mutants.py scope set rules decide --sample 12

bench: ## licet against its floor and its peers, as ratios; BENCH="--only NAME", "--against DIR" …
	@$(ENVIRONMENT) .venv-bench requirements-bench.lock --source-lock requirements-bench-source.lock
	@.venv-bench/bin/python -m benchmarks $(BENCH)

record: .venv ## run all benchmarks, keep the run, and write the pages that state speeds
	@$(MAKE) --no-print-directory bench BENCH=--write
	@$(MAKE) --no-print-directory reference

docs: ## the documentation, in site/
	@$(ENVIRONMENT) .venv-docs requirements-docs.lock --without-licet
	@report=$$(NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict 2>&1) || { echo "$$report"; exit 1; }
	@echo "· site/index.html"

pictures: .venv ## the pictures of the README, drawn again
	@$(BIN)/python scripts/pictures.py

reference: .venv ## write the generated parts of docs/ from the code again
	@$(BIN)/python scripts/reference.py
	@$(BIN)/python tests/programs/table.py

wheel: .venv ## the distribution files, in dist/
	@rm -rf dist
	@report=$$($(BIN)/python -m build --no-isolation 2>&1) || { echo "$$report"; exit 1; }
	@for file in dist/*; do echo "· $$file"; done

lock: ## pin again what pyproject.toml asks for; UPGRADE=1 takes the newest of everything
	@$(ENVIRONMENT) .venv-lock requirements-lock.lock --without-licet
	@scripts/lock $(if $(UPGRADE),--upgrade)

.venv:
	@$(ENVIRONMENT) .venv requirements.lock

clean: ## remove everything that make made
	@rm -rf .venv .venv-* .venv*.lock dist site mutants .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	@find src tests scripts benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

.PHONY: help demo install transcripts test check test-all test-user test-interpreters test-peers lint compiled-tests format mutants mutants-sample bench record docs pictures reference wheel lock clean .venv

# Everything starts here. `make` alone lists the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash
HEADRACE := .venv/bin/headrace

.PHONY: help setup demo test lint format bench up down logs test-stack audit ui clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv with all that is needed
	@infra/set-up

demo: setup ## run the main job on real data: flights from Spark through Delta to Ray
	@$(HEADRACE) run flows.train_delays.train_delays

test: setup ## pass the tests: pure ones first, then those with real engines
	@.venv/bin/python -m pytest

lint: setup ## ruff, mypy, import-linter
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports

format: setup ## let ruff format the code
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

bench: setup ## measure: each benchmark prints ratios beside their goals
	@for bench in benchmarks/[a-z]*.py; do echo "== $$bench"; .venv/bin/python "$$bench" || true; done

up: ## start the stack of containers: PostgreSQL, S3, Spark, Ray, Prefect, MLflow
	@infra/stack up

down: ## stop the stack of containers
	@infra/stack down

logs: ## follow the logs of the stack
	@infra/stack logs

test-stack: setup ## pass all tests in the running stack (make up)
	@HEADRACE_TEST_STACK=all HEADRACE_TEST_COMMITS=60 .venv/bin/python -m pytest tests/stack tests/delta/test_log_store.py

audit: setup ## report known vulnerabilities of the pinned packages
	@infra/audit

ui: setup ## start the servers of this machine and print their pages
	@$(HEADRACE) ui

clean: ## remove .venv and everything that runs made
	@[ ! -x $(HEADRACE) ] || $(HEADRACE) down
	rm -rf .venv .headrace dist

# The checkout's commands. Everything they write stays in the checkout: .venv, .venv-*, .cache.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all lint unit format bench clean
export STRATEGY FAIL # of the demo

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

setup: ## the virtual environment .venv with all that rollouts and the demo need
	@scripts/setup run

demo: setup ## a service under load is replaced without a failed request (STRATEGY=canary|blue_green; FAIL=1|errors: its revision is broken)
	@scripts/run scripts/demo

test: ## everything: style, types, the Ansible gates, all tests
	@scripts/system-packages
	@scripts/setup run test lint
	@scripts/check

test-all: ## what depends on ansible-core, on every supported one
	@scripts/system-packages
	@scripts/test-all

lint: ## the quick gates
	@scripts/setup run test lint
	@scripts/check ruff-check ruff-format shell types

unit: ## the quick tests
	@scripts/setup run test
	@scripts/check unit

format: ## rewrite the code in the agreed format
	@scripts/setup run test lint
	@scripts/run ruff check --fix --quiet . ; scripts/run ruff format .

bench: setup ## the measurements
	@scripts/run python tests/benchmarks/run.py

clean: ## end the demo, remove all that was made here
	@scripts/clean

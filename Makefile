# The checkout's commands. Everything they write stays in the checkout: .venv, .venv-*, .cache.
.DEFAULT_GOAL := help
.PHONY: help setup demo quick test test-engines soak test-all lint format generate docs bench release clean
export STRATEGY FAIL KEEP BALANCER # of the demo

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

setup: ## the virtual environment .venv with all that rollouts and the demo need
	@scripts/setup run

demo: setup ## a service under load is replaced without a failed request (STRATEGY=canary|blue_green; BALANCER=haproxy|envoy; FAIL=1|errors: its revision is broken; KEEP=1: it stays, to go on with by hand)
	@scripts/run scripts/demo

quick: ## for every save: style, types, unit and property tests, some rollouts; below three minutes
	@scripts/system-packages
	@scripts/setup run test lint
	@scripts/check --quick

test: ## everything: style, types, the Ansible gates, all tests; the same each time
	@scripts/system-packages
	@scripts/setup run test lint
	@scripts/check

test-engines: ## rollouts on a real Kubernetes, built the first time, which takes a quarter of an hour, and on a real Docker Swarm
	@scripts/system-packages
	@scripts/setup run test
	@scripts/test-engines

soak: ## tests that draw at random, with other seeds, for a given time (FOR=30m; SEED=... repeats a seed)
	@scripts/system-packages
	@scripts/setup run test
	@scripts/soak $(FOR)

test-all: ## what depends on ansible-core, on every supported version (CORES=2.19)
	@scripts/system-packages
	@scripts/test-all $(CORES)

lint: ## the gates that take seconds, and types
	@scripts/setup run test lint
	@scripts/check ruff-check ruff-format shell imports generated types

format: ## rewrite the code in the agreed format
	@scripts/setup run test lint
	@scripts/run ruff check --fix --quiet . ; scripts/run ruff format .

generate: ## what is made from the tables of options, results and messages: specs, module docs, the reference
	@scripts/setup run test
	@scripts/run python scripts/generate.py

docs: ## the documentation's site, below .cache/docs/html
	@scripts/setup run docs
	@scripts/run scripts/docs

bench: ## the measurements
	@scripts/system-packages
	@scripts/setup run test
	@scripts/run python tests/benchmarks/run.py

mutants: ## small changes of the engine that no test notices (FILES=budget.py); takes an hour or two
	@scripts/setup run test
	@scripts/run python scripts/mutants.py $(FILES)

release: ## the artefact that is published, linted as Galaxy does, and tried in an empty place
	@scripts/setup run test
	@VENV=.venv-release scripts/setup release
	@scripts/release

clean: ## end the demo, remove everything that these commands made
	@scripts/clean

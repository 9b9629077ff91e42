# The checkout's commands. Everything they write stays in the checkout: .venv, .venv-*, .cache. Only
# the Kubernetes that test-engines builds is kept for all checkouts of a machine, in ~/.cache.
.DEFAULT_GOAL := help
.PHONY: help setup demo quick test test-changed test-everything test-engines test-cores soak lint format generate docs bench release clean
export STRATEGY FAIL KEEP BALANCER # of the demo
export ONLY HOSTS # of the benchmarks

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

setup: ## the virtual environment .venv with all that rollouts and the demo need
	@scripts/setup run

demo: setup ## a service under load is replaced without a failed request (STRATEGY=canary|blue_green; BALANCER=haproxy|envoy; FAIL=1|errors: its revision is broken; KEEP=1: it stays, to go on with by hand)
	@scripts/run scripts/demo

quick: ## for every save: style, types, unit and property tests; needs no server and no root
	@scripts/setup run test lint
	@scripts/check --quick

test: ## before every pull request: style, types, unit and property tests, one real rollout of each kind
	@scripts/system-packages hosts
	@scripts/setup run test lint
	@scripts/check --test

test-changed: ## the tests that a change can make fail, and the gates that take seconds (BASE=main: of what differs from it)
	@scripts/system-packages hosts servers
	@scripts/setup run test lint
	@scripts/check --changed $(or $(BASE),main)

test-everything: ## all that `make test` leaves out: the Ansible gates, every example, scenario, store and fault (PART=drivers|e2e|molecule|ansible: a part of it)
	@scripts/system-packages hosts servers
	@scripts/setup run test lint
	@scripts/awx-collection
	@scripts/check --everything $(PART)

test-engines: ## rollouts on a real Kubernetes, which is built the first time on a machine, and on a real Docker Swarm: an hour
	@scripts/system-packages hosts servers
	@scripts/setup run test
	@scripts/test-engines

soak: ## tests that draw at random, with other seeds, for a given time (FOR=30m; SEED=... repeats a seed)
	@scripts/system-packages hosts servers
	@scripts/setup run test
	@scripts/soak $(FOR)

test-cores: ## what depends on ansible-core, on every supported version (CORES=2.19)
	@scripts/system-packages hosts servers
	@scripts/test-cores $(CORES)

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

bench: ## the measurements, in half an hour (ONLY="local many_hosts": some of them, by their files; HOSTS="100 300": sizes of many_hosts)
	@scripts/system-packages hosts servers
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

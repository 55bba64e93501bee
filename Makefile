# Every target sets up what it needs and may be run again at any time.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
PYTEST := $(PY) -m pytest
TIERS ?= unit contract machine e2e cluster

.PHONY: help venv system demo test lint format bench kill debian guests web proto crds generated conform replay kubernetes test-cluster scale manifest images clean

help: ## show this text
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

venv: $(READY) ## the Python environment, with the CLI at .venv/bin/anyvisor

$(READY): requirements.lock requirements-libvirt.lock pyproject.toml tools/setup.sh
	@tools/setup.sh venv $(VENV)
	@touch $@

system: ## Debian packages that running and testing VMs needs
	@tools/setup.sh system

demo: system venv guests ## boot a real VM through the API, show its console, kill everything of ours, clean up
	@$(PY) -m tools.demo

test: system venv guests web ## all tests that this machine can run
	@tools/setup.sh browser
	@$(PYTEST) $(addprefix tests/,$(TIERS)) $(ARGS)

kubernetes: venv ## the official Kubernetes, or PARTS of it, from its Go modules into ~/.cache/anyvisor (11 minutes at first)
	@$(PY) -m tests.cluster.kit.build $(PARTS)

test-cluster: system venv guests ## all cluster tests, on an official cluster that is built first
	@tools/setup.sh cluster
	@$(PY) -m tests.cluster.kit.build || true
	@$(PY) -m tools.images || true
	@ANYVISOR_CLUSTER=yes $(PYTEST) tests/cluster $(ARGS)

scale: venv ## 1,000 machines that boot nothing on 20 simulated nodes of an official control plane, measured
	@$(PY) -m tests.cluster.kit.build api
	@$(PY) -m tests.cluster.scale $(ARGS)

manifest: venv ## deploy/anyvisor-install.yaml from the chart (needs helm)
	@$(PY) -m tools.installmanifest

images: venv ## the container images as OCI archives, into build/images (needs root and mmdebstrap)
	@$(PY) -m tools.images

lint: system venv ## ruff, pyright (strict), generated code up to date
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(PY) tools/genproto.py --check
	@$(PY) tools/hridocs.py --check
	@$(VENV)/bin/basedpyright

format: venv ## format the code
	@$(VENV)/bin/ruff format .
	@$(VENV)/bin/ruff check --fix .

bench: system venv guests ## ratios against peers in the same run
	@$(PYTEST) tests/bench -s $(ARGS)

kill: system venv guests ## kill -9 at random moments while 20 VMs come and go
	@ANYVISOR_KILL_VMS=20 ANYVISOR_KILL_ROUNDS=20 $(PYTEST) tests/e2e/test_kill_many.py -s $(ARGS)

debian: system venv ## build a full Debian disk and try a server from its first boot to its shutdown
	@ANYVISOR_DEBIAN=1 $(PYTEST) tests/e2e/test_debian.py $(ARGS)

web: ## the web console's terminal and viewer, fetched by npm
	@tools/setup.sh web

guests: venv ## the test and demonstration guests, built into .cache/guests
	@$(PY) -m guests.build

proto: venv ## Python code of the HRI's proto files
	@$(PY) tools/genproto.py

crds: venv ## deploy/crds from the models
	@$(PY) -m anyvisor.api.crd

generated: proto crds manifest ## everything that is made from proto files, models and the chart (needs helm): run it after a change of any
	@$(PY) tools/hridocs.py

conform: system venv guests ## hold every driver of this machine to the specification; ARGS=--write keeps the evidence
	@$(PY) -m tools.conform $(ARGS)

replay: venv ## run a file of recorded cases against the product: make replay FILE=F
	@$(PY) -m tools.replay "$(FILE)"

clean: ## remove what the targets made
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

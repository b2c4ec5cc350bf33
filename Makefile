# Every target sets up what it needs; nothing but Python 3.11 and make has to be there before.

PYTHON ?= python3
BIN := .venv/bin
INSTALL := PATH="$(abspath $(BIN)):$$PATH" python scripts/install.py --editable
EXTRAS := algorithms,cluster,environments,games,gateway,gguf,judges,lora,plots,sandbox,studies,synthesis,trust,view,vllm
# The wings: packages of their own in this repository.
WINGS := $(foreach wing,algorithms cluster environments gateway judges sandbox studies synthesis trust view vllm,--editable packages/turnwise-$(wing))
comma := ,
# Packages of others whose adapters are tested. Not among them: inspect, which wants an older fsspec.
# Two of them need packages that are compiled; their tests skip where there is no compiler.
COMPILED := $(if $(shell command -v cc),reasoning-gym$(comma)textworld$(comma))
TESTED := $(COMPILED)browser,dense,mathematics,mcp,openenv,otel,renderers,verifiers,vision
# Each of two workers begins with half of the files, so that what a file's tests share is made once.
PYTEST := $(BIN)/pytest -n 2 --dist worksteal
# A start takes twice as long where Python may not keep the bytecode of what it imports.
unexport PYTHONDONTWRITEBYTECODE
QUICK := "not long and not slow and not vllm"

.PHONY: demo test test-all test-wings coverage test-bounds test-slow test-vllm chromium check docs format reference setup

# `make demo CHANGES="train.steps=30"` changes the recipe.
demo: .venv/ready
	$(BIN)/turnwise train demo --overwrite $(CHANGES)

# Every module, within five minutes; what is marked `long` is left to test-all.
test: .venv/developing
	$(PYTEST) -m $(QUICK)

# All of it but what is marked `slow` or `vllm`. CI runs it in two parts: the core without wings
# (.ci/alone), and the rest here.
test-all: .venv/developing
	$(PYTEST)

test-wings: .venv/developing
	$(PYTEST) -m "wing and not slow and not vllm"

# Which lines `make test` runs, in this process; what tests start in others is not counted.
coverage: .venv/developing
	$(PYTEST) -m $(QUICK) --cov=turnwise --cov-report=term:skip-covered

# With the lowest versions that pyproject.toml allows, and with the highest torch.
test-bounds: .venv/developing
	.ci/bounds

# What takes many minutes or much memory, or repeats with other data what test-all runs once: every
# architecture of transformers, all tasks of environments, 1,000 sandboxes, damage, kills, and
# clusters of several nodes that lose one.
test-slow: .venv/developing
	$(PYTEST) -m slow

# Installs vLLM for CPUs in an environment of its own, in the user's cache.
test-vllm: .venv/developing
	$(BIN)/pytest -m vllm -n 0 packages/turnwise-vllm/tests

# For the browser, where the system has no Chromium (Debian: apt-get install chromium).
chromium: .venv/ready
	$(INSTALL) ".[browser]"
	$(BIN)/playwright install chromium

check: .venv/developing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The site, in build/site: a warning, such as a link that leads nowhere, is an error.
docs: .venv/developing
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# The pages of docs/reference that are made from the code; a test says when they are old.
reference: .venv/developing
	$(BIN)/python -m scripts.reference_pages

format: .venv/developing
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: .venv/developing

.venv/ready: pyproject.toml $(wildcard packages/*/pyproject.toml) constraints.txt scripts/install.py
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade "pip>=25.1" "uv>=0.9,<1"
	$(INSTALL) ".[$(EXTRAS)]" $(WINGS)
	touch $@

.venv/developing: .venv/ready
	$(INSTALL) ".[$(EXTRAS),$(TESTED)]" $(WINGS) --group dev --group docs --group agents
	touch $@

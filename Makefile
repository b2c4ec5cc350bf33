# Every target sets up what it needs; nothing but Python 3.11 and make has to be there before.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-vllm chromium check format setup

demo: .venv/ready
	$(BIN)/turnwise train demo --overwrite

test: .venv/ready
	$(BIN)/pytest -n 2

# Installs vLLM for CPUs in an environment of its own, in the user's cache.
test-vllm: .venv/ready
	$(BIN)/pytest -m vllm -n 0 tests/engines/vllm

# For the browser, where the system has no Chromium (Debian: apt-get install chromium).
chromium: .venv/ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[browser]"
	$(BIN)/playwright install chromium

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: .venv/ready

# torch is pinned in constraints.txt: other builds of it bring several GB that a CPU has no use for.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[games,lora,plots]" --group dev
	touch $@

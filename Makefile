# Every target sets up what it needs; nothing but Python 3.11 and make has to be there before.

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --editable
EXTRAS := games,lora,plots
# Packages of others whose adapters are tested. Not among them: inspect, which wants an older fsspec.
TESTED := browser,dense,mcp,openenv,postgres,reasoning-gym,renderers,textworld,verifiers,vision

.PHONY: demo test test-plain test-bounds test-slow test-vllm chromium check format setup

demo: .venv/ready
	$(BIN)/turnwise train demo --overwrite

test: .venv/developing
	$(BIN)/pytest -n 2

# What has compiled kernels, without them.
test-plain: .venv/developing
	TURNWISE_KERNELS=off $(BIN)/pytest -n 2 tests/engines tests/kernels tests/learning tests/models

# With the lowest and the highest torch that pyproject.toml allows.
test-bounds: .venv/developing
	.ci/bounds

# What takes many minutes: every architecture of transformers.
test-slow: .venv/developing
	$(BIN)/pytest -m slow -n 2

# Installs vLLM for CPUs in an environment of its own, in the user's cache.
test-vllm: .venv/developing
	$(BIN)/pytest -m vllm -n 0 tests/engines/vllm

# For the browser, where the system has no Chromium (Debian: apt-get install chromium).
chromium: .venv/ready
	$(INSTALL) ".[browser]"
	$(BIN)/playwright install chromium

check: .venv/developing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/developing
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: .venv/developing

# torch comes first, by itself: the build for GPUs brings several GB that a CPU has no use for.
.venv/ready: pyproject.toml constraints.txt scripts/install_torch.py
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade "pip>=25.1" "uv>=0.9,<1"
	PATH="$(abspath $(BIN)):$$PATH" python scripts/install_torch.py
	$(INSTALL) ".[$(EXTRAS)]"
	touch $@

.venv/developing: .venv/ready
	$(INSTALL) ".[$(EXTRAS),$(TESTED)]" --group dev
	touch $@

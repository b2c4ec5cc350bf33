import os

import pytest

from benchmarks.peers import interpreter
from tests.engines.conftest import _one_thread, tokenizer

__all__ = ["_one_thread", "tokenizer"]


@pytest.fixture(scope="session")
def python() -> str:
    """The interpreter of an environment with vLLM, whose servers take little of a small machine."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return str(interpreter("vllm"))

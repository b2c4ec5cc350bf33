"""The part `vllm` of `gpu.py`: one server, the episodes of its part `sampling`, and new weights.

    python benchmarks/gpu.py --shape 4B --parts sampling vllm --vllm PYTHON
    python benchmarks/gpu.py --shape 4B --parts vllm --vllm PYTHON --transport nccl --server-gpu 1
    python benchmarks/gpu.py --shape 4B --parts vllm --vllm PYTHON --transport ipc \\
        --server-options="--gpu-memory-utilization 0.5"
    python benchmarks/gpu.py --device cpu --shape tiny --type float32 --parts vllm --vllm PYTHON \\
        --sequences 8 --new 16 --rounds 1 --server-options=--enforce-eager

PYTHON is the interpreter of an environment that has vLLM. The difference of log-probabilities is
the mean over what the parity check samples, after the first weights and after an update of all.
"""

import asyncio
import statistics
import time
from argparse import Namespace
from typing import Any

import torch
from engine_measurements import endless_tokenizer
from gpu_engine import episodes, longest
from gpu_models import random_model

from turnwise_vllm.make import make_vllm
from turnwise_vllm.settings import StartedServers, VllmEngineConfig


def vllm(arguments: Namespace, shape: str) -> dict[str, Any]:
    """Tokens a second of a server, the seconds until it has new weights, and how far its
    log-probabilities are from the model's own."""
    model = random_model(shape, arguments.type, arguments.device)
    found: dict[str, Any] = {"transport": arguments.transport}
    servers = StartedServers(
        python=arguments.vllm,
        devices=(arguments.server_gpu,) if arguments.server_gpu else (),
        arguments=tuple(arguments.server_options.split()),
    )
    config = VllmEngineConfig(
        name="vllm",
        servers=servers,
        transport=arguments.transport,
        max_sequences=arguments.sequences,
        start_seconds=1200,
        max_restarts=0,
    )

    async def measured() -> None:
        engine = make_vllm(config, model, endless_tokenizer(), longest(arguments, arguments.turns))
        try:
            for version, told in enumerate(("start", "update")):
                begin = time.perf_counter()
                await engine.load_weights({}, version)
                found[f"{told}, s"] = round(time.perf_counter() - begin, 2)
                found[f"parity after {told}"] = f"{engine.parity:.1e}"
                with torch.no_grad():
                    for weight in model.parameters():
                        weight.mul_(1.01)
            seconds = []
            for _ in range(arguments.rounds + 1):
                begin = time.perf_counter()
                await episodes(engine, model, arguments, arguments.turns)
                seconds.append(time.perf_counter() - begin)
            tokens = arguments.sequences * arguments.turns * arguments.new
            found["tokens/s"] = round(tokens / statistics.median(seconds[1:]))
        finally:
            await engine.stop()

    asyncio.run(measured())
    return found

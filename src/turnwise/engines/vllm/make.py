"""The engine over vLLM as a recipe describes it: servers to start, or servers that run.

Whatever can be known before the run begins is refused here: an interpreter without vLLM, a server
that does not answer, or one that would sample something else than the recipe says.
"""

import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from turnwise.config import ROUNDED_PARITY, EngineConfig, VllmConfig
from turnwise.engines.vllm.client import look_at
from turnwise.engines.vllm.engine import VllmEngine
from turnwise.engines.vllm.process import ServerProcess, check_interpreter
from turnwise.engines.vllm.replica import Replica
from turnwise.errors import ConfigError

NAME = "turnwise"
"""Name of the model on servers that turnwise starts."""


def make_vllm(
    config: EngineConfig,
    vllm: VllmConfig,
    model: PreTrainedModel,
    tokenizer: Any,
    max_tokens: int,
    folder: Path | None = None,
) -> VllmEngine:
    """An engine whose servers hold trajectories of at most `max_tokens` tokens.

    `folder` is where weights and logs of servers are written; a temporary one if not given. Raises
    ConfigError for what cannot work; starts nothing.
    """
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    limit = min(max_tokens, positions or max_tokens)
    temporary = None
    if folder is None:
        folder = temporary = Path(tempfile.gettempdir()) / f"turnwise-vllm-{uuid.uuid4().hex}"
    if vllm.urls:
        replicas = [_running(url, vllm, limit) for url in vllm.urls]
    else:
        replicas = _own(config, vllm, str(model.dtype).removeprefix("torch."), limit, folder)
    bound = config.parity_bound or ROUNDED_PARITY
    return VllmEngine(model, tokenizer, replicas, vllm, limit, folder, temporary, bound)


def _running(url: str, vllm: VllmConfig, limit: int) -> Replica:
    settings = look_at(url.rstrip("/"))
    context, mode = settings.get("max_model_len", limit), settings.get("logprobs_mode")
    if context < limit:
        raise ConfigError(
            f"vllm.urls: {url} has a context of {context} tokens, and trajectories may have "
            f"{limit}: lower rollout.max_tokens, or start it with --max-model-len {limit}"
        )
    if mode != "processed_logprobs":
        raise ConfigError(
            f"vllm.urls: {url} reports log-probabilities before temperature and truncation: start "
            "it with --logprobs-mode processed_logprobs"
        )
    return Replica(
        None, url.rstrip("/"), settings["name"], vllm.request_seconds, vllm.start_seconds
    )


def _own(
    config: EngineConfig, vllm: VllmConfig, dtype: str, limit: int, folder: Path
) -> list[Replica]:
    python = vllm.python or sys.executable
    check_interpreter(python)
    arguments = [
        *("--served-model-name", NAME),
        *("--dtype", dtype if vllm.dtype == "auto" else vllm.dtype),
        *("--max-model-len", str(limit)),
        *("--max-num-seqs", str(-(-config.max_sequences // vllm.replicas))),
        *("--logprobs-mode", "processed_logprobs"),
        *("--generation-config", "vllm"),  # no sampling options but those of the request
        "--disable-uvicorn-access-log",
        *(["--enable-sleep-mode"] if vllm.colocated else []),
        *vllm.arguments,
    ]
    replicas = []
    for number in range(vllm.replicas):
        devices = {"CUDA_VISIBLE_DEVICES": vllm.devices[number]} if vllm.devices else {}
        log = folder / f"server-{number}.log"
        process = ServerProcess(python, arguments, devices, log)
        seconds = vllm.request_seconds, vllm.start_seconds
        replicas.append(Replica(process, "", NAME, *seconds))
    return replicas

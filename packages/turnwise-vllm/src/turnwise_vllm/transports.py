"""New weights as folders that a server reads: of the whole model, or of LoRA adapters alone.

A folder appears whole or not at all. Adapters are merged into what is written, never into the model
itself, whose weights would not come back exactly. Tied embeddings are written untied: a server may
keep a packed copy of the output layer that a reload of the embeddings would not renew.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from turnwise.errors import ConfigError, InfrastructureError
from turnwise.forward.images import reader_of
from turnwise_vllm.client import Client, ServerRefusedError

SMALL_FILE = 16 * 2**20
"""Bytes of a file that is not divided further; what is saved together is in memory twice."""
LORA = ".lora_"
"""A part of the names that peft gives to the weights of its adapters."""
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM allows for `--max-lora-rank`."""


class Files:
    """The whole model, adapters merged, in a folder that the server reads."""

    def __init__(self, root: Path, seconds: float, name: str = "weights") -> None:
        """Write below `root`; `seconds` is the deadline of a server's reading."""
        self._folders, self._seconds = WeightFolders(root / name), seconds

    def write(self, model: PreTrainedModel, tokenizer: Any, version: int) -> Path:
        """Keep the model's present weights; returns the folder's name that they go by from now on.
        Raises InfrastructureError when the disk fails."""

        def save(folder: Path) -> None:
            save_model(model, tokenizer, merged_weights(model), folder)

        return self._folders.write(version, save)

    def served(self, folder: Path) -> Path:
        """The model folder that a server is started with, so that it can take `folder`."""
        return folder

    async def take(
        self, client: Client, folder: Path, label: str, before: str, started: bool
    ) -> str | None:
        """Let a server take the weights in a folder, which replace those labelled `before`.

        `started` is a server that has just been started with what `served` gave. Returns the name
        by which it knows them, or None where that is the model's own.
        """
        if not started:
            await client.reload(str(folder.resolve()), self._seconds)
        return None

    def keep_only(self, folder: Path) -> None:
        """Forget all other weights."""
        self._folders.keep_only(folder)

    def clear(self) -> None:
        """Delete all that was written. Idempotent."""
        self._folders.clear()


class Adapters(Files):
    """The adapters alone, under a new name for each version: the base model stays as it is.

    A name is never given twice, since vLLM may go on using what it read under it first.
    """

    def __init__(self, root: Path, seconds: float) -> None:
        super().__init__(root, seconds, "adapters")
        self._base = root / "base"

    def write(self, model: PreTrainedModel, tokenizer: Any, version: int) -> Path:
        """A new folder of adapters; with the first one the base model is written too."""
        save_base(model, tokenizer, base_weights(model), self._base)
        return self._folders.write(version, lambda folder: save_adapters(model, folder))

    def served(self, folder: Path) -> Path:
        return self._base

    async def take(
        self, client: Client, folder: Path, label: str, before: str, started: bool
    ) -> str | None:
        if not started:
            # `label` too: an attempt that failed later on may have loaded it.
            for name in filter(None, {before, label}):
                with suppress(ServerRefusedError):  # one that was started again has not got it
                    await client.unload_adapters(name)
        await client.load_adapters(label, str(folder.resolve()), self._seconds)
        return label

    def clear(self) -> None:
        super().clear()
        shutil.rmtree(self._base, ignore_errors=True)


def server_arguments(model: Any) -> list[str]:
    """The options of a server that takes a model's adapters. Raises ConfigError for a rank that no
    server takes."""
    ((_, adapters),) = model.peft_config.items()
    rank = int(adapters.r)
    allowed = next((one for one in RANKS if one >= rank), None)
    if allowed is None:
        raise ConfigError(
            f"model.lora_rank is {rank}, and vLLM takes adapters up to rank {RANKS[-1]}: lower it, "
            "or set engine.transport=files"
        )
    return ["--enable-lora", "--max-lora-rank", str(allowed)]


class WeightFolders:
    """Numbered folders under `root`. Example: `folders.write(3, save)`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._number = 0

    def write(self, version: int, save: Callable[[Path], None]) -> Path:
        """A new folder with what `save` writes into it. Raises InfrastructureError when the disk
        fails."""
        self._number += 1
        target = self._root / f"{self._number:06d}-version-{version}"
        partial = target.with_name(target.name + ".partial")
        try:
            shutil.rmtree(partial, ignore_errors=True)
            shutil.rmtree(target, ignore_errors=True)
            save(partial)
            os.replace(partial, target)
        except OSError as error:
            raise InfrastructureError(
                f"the weights for vLLM cannot be written to {target}: {error.strerror or error}"
            ) from error
        return target

    def keep_only(self, folder: Path) -> None:
        """Delete all others."""
        for other in self._root.iterdir():
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)

    def clear(self) -> None:
        """Delete all. Idempotent."""
        shutil.rmtree(self._root, ignore_errors=True)


def base_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """The state dict that the model had before it got adapters."""
    weights = model.state_dict().items()
    return {name.replace(".base_layer.", "."): one for name, one in weights if LORA not in name}


def merged_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """The state dict that the model would have without its adapters, with what they add."""
    weights = base_weights(model)
    for name, module in model.named_modules():
        layer: Any = module
        for adapter in _active_adapters(module):
            key = f"{name}.weight"
            weights[key] = weights[key] + layer.get_delta_weight(adapter).to(weights[key].dtype)
    return weights


def _active_adapters(module: torch.nn.Module) -> list[str]:
    """The active adapters of a layer with LoRA; an empty list for any other module."""
    if not hasattr(module, "get_delta_weight"):
        return []
    return list(cast(Sequence[str], module.active_adapters))


def save_model(
    model: PreTrainedModel, tokenizer: Any, weights: dict[str, Tensor], folder: Path
) -> None:
    """Write a model folder of transformers with these weights, untied, the tokenizer, and the image
    processor if there is one."""
    tied = _tied(model, weights)
    weights |= {name: weights[name].detach().clone() for name in tied}
    size = sum(weight.numel() * weight.element_size() for weight in weights.values())
    model.save_pretrained(folder, state_dict=weights, max_shard_size=max(SMALL_FILE, size // 64))
    if tied:
        _untie(folder)
    tokenizer.save_pretrained(str(folder))
    reader = reader_of(model)
    if reader is not None:
        reader.save(folder)


def save_base(
    model: PreTrainedModel, tokenizer: Any, weights: dict[str, Tensor], folder: Path
) -> None:
    """Write a folder to start servers with, unless it is there. Raises InfrastructureError when the
    disk fails."""
    try:
        if not folder.is_dir():
            save_model(model, tokenizer, weights, folder)
    except OSError as error:
        raise InfrastructureError(
            f"the model for vLLM cannot be written to {folder}: {error.strerror or error}"
        ) from error


def save_adapters(model: PreTrainedModel, folder: Path) -> None:
    """Write the model's adapters as a folder of peft. Raises OSError."""
    configs: Mapping[str, Any] = cast(Any, model).peft_config
    ((name, config),) = configs.items()
    weights = {
        f"base_model.model.{key.replace(f'.{name}.', '.')}": weight.contiguous()
        for key, weight in model.state_dict().items()
        if LORA in key
    }
    config.save_pretrained(str(folder))
    save_file(weights, folder / "adapter_model.safetensors")


def _tied(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> list[str]:
    """Names of the output layer's weights, if they are the embeddings' own."""
    output = model.get_output_embeddings()
    if output is None or output.weight is not model.get_input_embeddings().weight:
        return []
    shared = [
        name
        for name, weight in model.named_parameters(remove_duplicate=False)
        if weight is output.weight and name in weights
    ]
    return shared[1:]  # one keeps the tensor, the others get copies


def _untie(folder: Path) -> None:
    file = folder / "config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    for table in (config, config.get("text_config") or {}):
        table["tie_word_embeddings"] = False
    file.write_text(json.dumps(config, indent=2), encoding="utf-8")

"""How new weights reach a server: as files of the whole model, or as LoRA adapters alone.

Each writes a folder that the server reads by the same path.
"""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from transformers import PreTrainedModel

from turnwise.errors import ConfigError
from turnwise_vllm.client import Client, ServerRefusedError
from turnwise_vllm.weights import (
    WeightFolders,
    base_weights,
    merged_weights,
    save_adapters,
    save_base,
    save_model,
)

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM allows for `--max-lora-rank`."""


class Transport(Protocol):
    """The way of new weights to a server."""

    def write(self, model: PreTrainedModel, tokenizer: Any, version: int) -> Path:
        """Keep the model's present weights; returns the folder's name that they go by from now on.
        Raises InfrastructureError when the disk fails."""
        ...

    def served(self, folder: Path) -> Path:
        """The model folder that a server is started with, so that it can take `folder`."""
        ...

    async def take(
        self, client: Client, folder: Path, label: str, before: str, started: bool
    ) -> str | None:
        """Let a server take the weights in a folder, which replace those labelled `before`.

        `started` is a server that has just been started with what `served` gave. Returns the name
        by which it knows them, or None where that is the model's own.
        """
        ...

    def keep_only(self, folder: Path) -> None:
        """Forget all other weights."""
        ...

    def clear(self) -> None:
        """Delete all that was written. Idempotent."""
        ...


class Files:
    """The whole model, adapters merged, in a folder that the server reads."""

    def __init__(self, root: Path, seconds: float) -> None:
        """Write below `root`; `seconds` is the deadline of a server's reading."""
        self._folders = WeightFolders(root / "weights")
        self._seconds = seconds

    def write(self, model: PreTrainedModel, tokenizer: Any, version: int) -> Path:
        def save(folder: Path) -> None:
            save_model(model, tokenizer, merged_weights(model), folder)

        return self._folders.write(version, save)

    def served(self, folder: Path) -> Path:
        return folder

    async def take(
        self, client: Client, folder: Path, label: str, before: str, started: bool
    ) -> str | None:
        if not started:
            await client.reload(str(folder.resolve()), self._seconds)
        return None

    def keep_only(self, folder: Path) -> None:
        self._folders.keep_only(folder)

    def clear(self) -> None:
        self._folders.clear()


class Adapters:
    """The adapters alone, under a new name for each version: the base model stays as it is.

    A name is never given twice, since vLLM may go on using what it read under it first.
    """

    def __init__(self, root: Path, seconds: float) -> None:
        """Write below `root`; `seconds` is the deadline of a server's reading."""
        self._folders = WeightFolders(root / "adapters")
        self._base, self._seconds = root / "base", seconds

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
            for name in filter(None, {before, label}):
                with suppress(ServerRefusedError):  # one that was started again has not got it
                    await client.unload_adapters(name)
        await client.load_adapters(label, str(folder.resolve()), self._seconds)
        return label

    def keep_only(self, folder: Path) -> None:
        self._folders.keep_only(folder)

    def clear(self) -> None:
        self._folders.clear()
        shutil.rmtree(self._base, ignore_errors=True)


def server_arguments(rank: int) -> list[str]:
    """The options of a server that takes adapters of this rank. Raises ConfigError where no server
    does."""
    allowed = next((one for one in RANKS if one >= rank), None)
    if allowed is None:
        raise ConfigError(
            f"model.lora_rank is {rank}, and vLLM takes adapters up to rank {RANKS[-1]}: lower it, "
            "or set engine.transport=files"
        )
    return ["--enable-lora", "--max-lora-rank", str(allowed)]

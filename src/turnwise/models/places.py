"""Where a model lies, and whether it is there: with turnwise, in a folder, a GGUF file or a hub."""

import json
import os
from importlib import resources
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from turnwise.config import ModelConfig
from turnwise.errors import ConfigError, DataError

TINY = ("tiny", "tiny_search", "tiny_demo")
"""The checkpoints that come with the package, by name."""
SECONDS = 5.0
"""The hub's time for an answer."""
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""Environment variables that say not to ask the hub."""


def tiny_folder(name: str = "tiny") -> Path:
    """The folder of a checkpoint that comes with the package."""
    return Path(str(resources.files("turnwise.models"))) / name


def source_of(config: ModelConfig) -> str:
    """The folder or the hub's name of the model that a recipe names. Raises as `check_folder`."""
    if config.name in TINY:
        return str(tiny_folder(config.name))
    from turnwise.models.gguf import folder_of, is_gguf  # what few runs need is not loaded by all

    if is_gguf(config.name):
        return str(folder_of(config.name))
    check_folder(config.name)
    return config.name


def check_model(config: ModelConfig, longest: int = 0) -> None:
    """Raise DataError where a model's folder is none, or a hub, which is asked once, does not
    answer or know its name; ConfigError where its context is shorter than `longest`."""
    if config.name not in TINY:
        from turnwise.models.gguf import check_gguf, is_gguf

        if is_gguf(config.name):
            check_gguf(config.name)
            return
    source = source_of(config)
    if (file := Path(source) / "config.json").is_file():
        try:
            settings = json.loads(file.read_text())
            own = settings.get("text_config") or settings
            check_context(own.get("max_position_embeddings"), longest)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(f"model {source}: config.json is no model's ({error})") from None
    elif not _cached(source) and not any(map(os.environ.get, OFFLINE)):
        _ask_hub(source)


def check_context(context: int | None, longest: int) -> None:
    """Raise ConfigError where trajectories of `longest` tokens may be longer than the context."""
    if context is not None and longest > context:
        raise ConfigError(
            f"rollout.max_tokens is {longest}, but the model's context is {context}: lower it"
        )


def check_folder(source: str) -> None:
    """Raise DataError for a path that is no folder of a model with a tokenizer."""
    folder = Path(source)
    if not folder.is_dir():
        if folder.is_absolute() or source.startswith((".", "~")) or source.count("/") > 1:
            raise DataError(f"model {source}: there is no such folder")
        return
    if not (folder / "config.json").is_file():
        raise DataError(f"model {source}: the folder has no config.json")
    names = set(os.listdir(folder))
    if not names & {"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json"}:
        raise DataError(f"model {source}: the folder has no tokenizer (tokenizer.json)")


def _cached(source: str) -> bool:
    """Whether the hub's cache has something of a model, where its library keeps it."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    return (cache / f"models--{source.replace('/', '--')}").is_dir()


def _ask_hub(source: str) -> None:
    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    asked = Request(f"{hub}/{quote(source)}/resolve/main/config.json", method="HEAD")
    try:
        urlopen(asked, timeout=SECONDS).close()
    except HTTPError as error:
        if error.code == 404:
            raise DataError(
                f"model {source}: {hub} has none of that name, and there is no such folder"
            ) from None  # others, such as one that asks for a token, are left to the hub's library
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise DataError(
            f"model {source}: there is no such folder, and {hub} cannot be reached ({reason}): "
            "give a folder, or see to the network"
        ) from None

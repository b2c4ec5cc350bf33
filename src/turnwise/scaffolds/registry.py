"""Scaffolds by name."""

from collections.abc import Callable, Sequence

from transformers import PreTrainedTokenizerBase

from turnwise.config import ScaffoldConfig
from turnwise.errors import ConfigError, unknown_name
from turnwise.scaffolds.base import Scaffold
from turnwise.scaffolds.code import CodeScaffold
from turnwise.scaffolds.native import NativeScaffold
from turnwise.scaffolds.react import ReActScaffold
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.tools.tool import Tool

SCAFFOLDS: dict[str, type[CodeScaffold | NativeScaffold | ReActScaffold | TagsScaffold]] = {
    "code": CodeScaffold,
    "native": NativeScaffold,
    "react": ReActScaffold,
    "tags": TagsScaffold,
}


def make_scaffold(
    config: ScaffoldConfig,
    tokenizer: PreTrainedTokenizerBase,
    tools: Sequence[Tool],
    encode_picture: Callable[[bytes], Sequence[int]] | None = None,
) -> Scaffold:
    """Build the scaffold a recipe names; `encode_picture` gives the tokens that stand for a PNG,
    where the model takes pictures. Raises ConfigError for an unknown name or option."""
    if config.name not in SCAFFOLDS:
        raise unknown_name("scaffold", config.name, SCAFFOLDS)
    try:
        scaffold = SCAFFOLDS[config.name](tokenizer, tools, **config.options)
    except TypeError as error:
        raise ConfigError(f"scaffold.options of {config.name!r}: {error}") from None
    scaffold.encode_picture = encode_picture
    return scaffold


def shows_pictures(name: str) -> bool:
    """Whether the scaffold shows observations' images to a model that takes them."""
    return name in SCAFFOLDS and SCAFFOLDS[name].shows_pictures

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

SCAFFOLDS: dict[str, Callable[..., Scaffold]] = {
    "code": CodeScaffold,
    "native": NativeScaffold,
    "react": ReActScaffold,
    "tags": TagsScaffold,
}


def make_scaffold(
    config: ScaffoldConfig, tokenizer: PreTrainedTokenizerBase, tools: Sequence[Tool]
) -> Scaffold:
    """Build the scaffold a recipe names. Raises ConfigError for an unknown name or option."""
    if config.name not in SCAFFOLDS:
        raise unknown_name("scaffold", config.name, SCAFFOLDS)
    try:
        return SCAFFOLDS[config.name](tokenizer, tools, **config.options)
    except TypeError as error:
        raise ConfigError(f"scaffold.options of {config.name!r}: {error}") from None

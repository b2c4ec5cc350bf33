"""Scaffolds by name: built-in ones, and a user's own; each is imported when it is asked for."""

from collections.abc import Callable, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from turnwise.config import ScaffoldConfig
from turnwise.registry import Registry, check_options, has_all
from turnwise.scaffolds.base import Scaffold
from turnwise.tokens import Source
from turnwise.tools.tool import Tool
from turnwise.types import Observation

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

METHODS = ("begin", "extend", "parse", "render", "truncate")

SCAFFOLDS: Registry[Callable[..., Scaffold]] = Registry(
    "scaffold", has_all(*METHODS), f"give a class with {', '.join(METHODS)}, and stop"
)
SCAFFOLDS.register(
    "tags",
    "turnwise.scaffolds.tags:TagsScaffold",
    "Tag syntax, as in Search-R1: <think>…</think>, then <tool>…</tool> or <answer>…</answer>.",
)


def check_scaffold(config: ScaffoldConfig) -> None:
    """Raise ConfigError for an unknown name or option."""
    place, kind = f"scaffold.options of {config.name!r}", SCAFFOLDS.get(config.name)
    check_options(place, kind, (None, ()), config.options)


def make_scaffold(
    config: ScaffoldConfig,
    tokenizer: "PreTrainedTokenizerBase",
    tools: Sequence[Tool],
    encode_image: Callable[[bytes], Sequence[int]] | None = None,
) -> Scaffold:
    """Build the scaffold a recipe names, `Class(tokenizer, tools, **options)`; `encode_image`
    gives the tokens that stand for a PNG, where the model takes images. Raises ConfigError for an
    unknown name or option, and for a chat template that does not show a user's first message."""
    check_scaffold(config)
    kind = SCAFFOLDS.get(config.name)
    scaffold: Any = kind(tokenizer, tools, **config.options)
    if getattr(kind, "shows_images", False):
        scaffold.encode_image = encode_image
    made: Scaffold = scaffold
    made.begin(Observation("Hello.", Source.USER))  # a template that cannot is refused here
    return made


def with_date(config: ScaffoldConfig, tokenizer: "PreTrainedTokenizerBase") -> ScaffoldConfig:
    """The settings with today's date, if prompts hold it: a run's prompts stay the same."""
    takes = getattr(SCAFFOLDS.get(config.name), "takes_today", None)
    if takes is None or config.options.get("date") or not takes(tokenizer, config.options):
        return config
    return config.model_copy(
        update={"options": {**config.options, "date": date.today().isoformat()}}
    )


def shows_images(name: str) -> bool:
    """Whether the scaffold shows observations' images to a model that takes them: its class says so
    by `shows_images`, and gets the images' tokens by `encode_image`."""
    return bool(getattr(SCAFFOLDS.get(name), "shows_images", False))

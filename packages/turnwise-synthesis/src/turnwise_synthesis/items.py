"""The items of a synthesis, and the methods that propose them.

    class Sums:
        def __init__(self, material: Material, largest: Count = 9) -> None: ...

        def propose(self, attempt: int) -> Item:
            numbers = random.Random(derive(self.seed, attempt))
            ...
            raise Refused("guessable")

Next: `loop.py`.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from turnwise.environments.base import Environment
from turnwise.environments.registry import environment_of
from turnwise.registry import Registry
from turnwise.seeds import derive

if TYPE_CHECKING:
    from turnwise.config import Recipe
    from turnwise.parts.components import Components
    from turnwise_synthesis.asking import Model
    from turnwise_synthesis.settings import SynthesisConfig


@dataclass(frozen=True)
class Item:
    """One item. Example: Item("who wrote emma", {"question": "Who wrote Emma?", "answer": ...})."""

    key: str
    """The content that two equal items share, normalised."""
    data: Mapping[str, Any]
    """The item's line of `items.jsonl`, beside its number and key."""


class Refused(Exception):
    """A proposal that is none. The text is its reason in a word or two, by which it is counted."""


@dataclass(frozen=True)
class Material:
    """All that a method may use. Parts that cost something are made when they are asked for."""

    recipe: "Recipe"
    settings: "SynthesisConfig"
    resources: ExitStack = field(default_factory=ExitStack)
    """All that has to be ended after the last attempt."""

    @property
    def seed(self) -> int:
        """The seed from which an attempt's own is derived, `derive(material.seed, attempt)`."""
        return derive(self.settings.seed, "synthesis", self.settings.method)

    @cached_property
    def environment(self) -> Environment:
        """The recipe's environment."""
        return environment_of(self.recipe)

    @cached_property
    def model(self) -> "Model":
        """The model of `synthesis.model`, for single questions."""
        from turnwise_synthesis.asking import make_model

        return make_model(self)

    @cached_property
    def components(self) -> "Components":
        """The recipe's policy in its engine, for episodes."""
        from turnwise_synthesis.asking import built

        return built(self.recipe, self.resources)


class Method(Protocol):
    """The interface of a method, whose constructor takes the material, then its options."""

    def propose(self, attempt: int) -> Item:
        """The item of an attempt, which depends on the seed and the attempt's number alone. Raises
        Refused where it comes to nothing."""


METHODS: Registry[type[Method]] = Registry(
    "synthesis_method",
    lambda found: isinstance(found, type) and hasattr(found, "propose"),
    "give it propose(attempt)",
)

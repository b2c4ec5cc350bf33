"""Tools of one's own beside an environment's, by name in a recipe.

    [environment]
    name = "search"
    tools = ["mine.py:convert"]

Such a tool is a function marked `@tool`, without a state: what has to be saved with an episode
belongs in an environment. The class is derived anew for each environment, so that all else about it
stays. Not here: rules for tools with consequences (`guarded.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from turnwise.environments.base import Environment
from turnwise.errors import ConfigError
from turnwise.registry import Registry
from turnwise.tools.tool import Tool, is_tool

TOOLS: Registry[Callable[..., Any]] = Registry("tool", is_tool, "mark the function with @tool")

Own = TypeVar("Own", bound=Environment)


class Equipped(Environment):
    """Tools beside those of an environment's own class, from which `equipped` derives one together
    with this. Tasks, verdicts and oracle are those without them."""

    _added: Mapping[str, Tool]

    def tools(self) -> list[Tool]:
        return sorted([*super().tools(), *self._added.values()], key=lambda one: one.name)

    def ablations(self) -> Mapping[str, Environment]:
        """The environment's ablations, with the same tools."""
        return {name: _with(kind, self._added) for name, kind in super().ablations().items()}

    def _callable(self) -> Mapping[str, Tool]:
        return {**super()._callable(), **self._added}


def equipped(environment: Own, names: Sequence[str]) -> Own:
    """The environment with further tools by name; itself where there are none.

    Raises ConfigError for a name that is no tool, and for a tool of a name that is there already.
    """
    if not names:
        return environment
    there = {tool.name for tool in environment.tools()}
    added: dict[str, Tool] = {}
    for name in names:
        tool = Tool.of(TOOLS.get(name))
        if tool.name in there or tool.name in added:
            raise ConfigError(
                f"environment.tools: {name} is called {tool.name!r}, as another tool of "
                f"{environment.spec.name}: give the function another name"
            )
        added[tool.name] = tool
    return _with(environment, added)


def _with(environment: Own, tools: Mapping[str, Tool]) -> Own:
    made = environment.under(Equipped)
    made._added = tools
    return cast(Own, made)

"""Options that make no sense, of the built-in environments: refused in a line that names them.

Not here: ranges and tables that docs/reference/environment_options.md shows."""

import re
from typing import Any

import pytest

from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError

pytestmark = pytest.mark.wing("environments")

COUNTS: dict[str, tuple[str, ...]] = {
    "bandit": ("pulls",),
    "code": ("tasks.count",),
    "deep_research": ("page_tokens",),
    "desk": ("count",),
    "function_calling": ("count", "tools"),
    "long_walk": ("length", "count"),
    "mathematics": ("tasks.count",),
    "multi_tool": ("count", "top_k"),
    "repair": ("tasks.count",),
    "search": ("top_k", "result_tokens"),
    "shell": ("tasks.count",),
    "shop": ("count",),
    "sql": ("tasks.count",),
    "web_forms": ("count",),
}
"""Options by environment of which at least 1 is wanted; their page says other ranges."""
TOGETHER: list[tuple[str, dict[str, Any], str]] = [
    ("desk", {"wishes": []}, "desk: wishes are some of"),
    ("desk", {"wishes": ["cancel", "cancel"]}, "each once"),
    ("desk", {"user": {"url": "http://127.0.0.1:1/v1", "model": ""}}, "user: model is empty"),
    ("frozen_lake", {"size": 5, "maps": 0}, "the standard maps are 4x4, 8x8, not 5x5"),
    ("long_walk", {"herald_every": -1}, "option 'herald_every' is -1: give"),
    ("function_calling", {"kinds": []}, "kinds are some of add_event,"),
    ("function_calling", {"kinds": ["set_room", "set_room"]}, "each once"),
    ("mathematics", {"tasks": {"min_steps": 3, "max_steps": 2}}, "min_steps is above max_steps"),
    ("multi_tool", {"count": 2881}, "at most 2880"),
    ("multi_tool", {"kinds": []}, "kinds are some of none, search, calculator, both"),
    ("multi_tool", {"kinds": ["both", "both"]}, "each once"),
    ("multi_tool", {"kinds": ["search"], "count": 721}, "there are 720 tasks: lower count"),
    ("proofs", {"tasks": {"min_steps": 3, "max_steps": 2}}, "min_steps is above max_steps"),
    ("repair", {"tasks": {"file": "a", "runner": "pytest"}}, "goes with tasks.repositories"),
    ("repair", {"tasks": {"file": "a", "repositories": "x", "runner": "nose"}}, "is 'nose'"),
    ("sokoban", {"tasks": {"size": 5, "boxes": 9}}, "9 boxes do not fit on a board of 5 x 5"),
    ("web_forms", {"kinds": ["fild"]}, "did you mean 'fields'"),
    ("web_forms", {"observations": "screenshot"}, 'needs a screen: set pages = "browser"'),
]


def cases() -> list[tuple[str, dict[str, Any], str]]:
    """Names, options, and what is said of them."""
    found = []
    for environment, names in COUNTS.items():
        for name in names:
            *outer, own = name.split(".")
            given = {outer[0]: {own: 0}} if outer else {own: 0}
            found.append((environment, given, f"option '{name}' is 0: give"))
    return [*found, *TOGETHER]


@pytest.mark.parametrize(("name", "options", "message"), cases())
def test_options_that_make_no_sense_are_refused(
    name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        make_environment(name, options)

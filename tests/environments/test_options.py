"""Options that make no sense, of the built-in environments: refused in a line that names them."""

import re
from typing import Any

import pytest

from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError

pytestmark = pytest.mark.wing("environments")

BEYOND: dict[str, dict[str, Any]] = {
    "bandit": {"pulls": 0},
    "code": {"tasks.count": 0, "tasks.max_steps": 4},
    "deep_research": {"page_tokens": 0},
    "desk": {"count": 0},
    "frozen_lake": {"size": 1},
    "function_calling": {"count": 0, "tools": 0, "max_requests": 4},
    "long_walk": {"length": 0, "herald_every": -1, "count": 0, "heldout_share": 2},
    "mathematics": {"tasks.count": 0, "tasks.max_steps": 5, "tasks": "q.jsonl"},
    "multi_tool": {"count": 0, "top_k": 0, "interpreter": "abacus"},
    "proofs": {"tasks.max_steps": 40},
    "repair": {"tasks.count": 0},
    "search": {"top_k": 0, "result_tokens": 0},
    "shell": {"tasks.count": 0, "tasks.max_requests": 4},
    "shop": {"count": 0, "page": 51},
    "sokoban": {"tasks.size": 4},
    "sql": {"tasks.count": 0, "tasks.grammar": "huge"},
    "web_forms": {"count": 0, "pages": "html"},
}
"""Options by environment, each with a value that it cannot have."""
FILES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "code": ({"heldout_share": 0.1}, {"count": 3}),
    "mathematics": ({"heldout_share": 0.1}, {"count": 5}),
    "repair": ({"heldout_share": 0.1, "repositories": "x"}, {"count": 3}),
    "shell": ({"heldout_share": 0.1, "scripts": "x"}, {"count": 3}),
    "sql": ({"heldout_share": 0.2}, {"grammar": "small"}),
}
"""Settings of tasks that are for a file's alone, and such as do not go with a file."""
TOGETHER: list[tuple[str, dict[str, Any], str]] = [
    ("desk", {"wishes": []}, "desk: wishes are some of"),
    ("desk", {"wishes": ["cancel", "refund"]}, "option 'wishes' is 'refund': give one of 'cancel'"),
    ("desk", {"wishes": ["cancel", "cancel"]}, "each once"),
    ("desk", {"user": {"url": "http://127.0.0.1:1/v1", "model": ""}}, "user: model is empty"),
    ("frozen_lake", {"size": 5, "maps": 0}, "the standard maps are 4x4, 8x8, not 5x5"),
    ("function_calling", {"kinds": []}, "kinds are some of add_event,"),
    ("function_calling", {"kinds": ["set_room", "set_room"]}, "each once"),
    ("function_calling", {"kinds": ["set_rooms"]}, "'set_rooms'"),
    ("function_calling", {"kinds": ["set_degrees"], "max_requests": 1, "count": 60}, "lower count"),
    ("mathematics", {"tasks": {"min_steps": 3, "max_steps": 2}}, "min_steps is above max_steps"),
    ("mathematics", {"tasks": {"file": "q", "heldout_share": 2.0}}, "'tasks.heldout_share' is 2.0"),
    ("mathematics", {"tasks": {"files": "q"}}, "unknown option 'tasks.files': did you mean"),
    ("multi_tool", {"count": 2881}, "at most 2880"),
    ("multi_tool", {"kinds": []}, "kinds are some of none, search, calculator, both"),
    ("multi_tool", {"kinds": ["both", "both"]}, "each once"),
    ("multi_tool", {"kinds": ["search"], "count": 721}, "there are 720 tasks: lower count"),
    ("proofs", {"tasks": {"min_steps": 3, "max_steps": 2}}, "min_steps is above max_steps"),
    ("repair", {"tasks": {"file": "a", "runner": "pytest"}}, "goes with tasks.repositories"),
    ("repair", {"tasks": {"file": "a", "repositories": "x", "runner": "nose"}}, "is 'nose'"),
    ("search", {"tasks": {"heldout_share": 0.3}}, "goes with tasks.file"),
    ("search", {"tasks": {"documents": "a"}}, "'tasks.documents' goes with tasks.file"),
    ("search", {"tasks": {"documents": "a", "file": "b", "inverse": False}}, "does not go with"),
    ("search", {"documents": "a"}, "unknown option 'documents': did you mean 'tasks.documents'"),
    ("sokoban", {"tasks": {"size": 5, "boxes": 9}}, "9 boxes do not fit on a board of 5 x 5"),
    ("sql", {"tasks": {"file": "a.json", "heldout_share": 2}}, "'tasks.heldout_share' is 2"),
    ("web_forms", {"kinds": ["fild"]}, "did you mean 'fields'"),
    ("web_forms", {"observations": "screenshot"}, 'needs a screen: set pages = "browser"'),
]


def cases() -> list[tuple[str, dict[str, Any], str]]:
    """Names, options, and what is said of them."""
    found = []
    for environment, options in BEYOND.items():
        for name, value in options.items():
            *outer, own = name.split(".")
            given = {outer[0]: {own: value}} if outer else {own: value}
            found.append((environment, given, f"option '{name}' is {value!r}: give"))
    for environment, (of_files, others) in FILES.items():
        for name, value in of_files.items():
            message = f"'tasks.{name}' goes with tasks.file"
            found.append((environment, {"tasks": {name: value}}, message))
        for name, value in others.items():
            message = f"'tasks.{name}' does not go with tasks.file"
            found.append((environment, {"tasks": {"file": "a", name: value}}, message))
    return [*found, *TOGETHER]


@pytest.mark.parametrize(("name", "options", "message"), cases())
def test_options_that_make_no_sense_are_refused(
    name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        make_environment(name, options)

"""Cases of a table, marked where they name something of a wing."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from turnwise.wings import OWN

ALGORITHMS = {
    name
    for kind in ("algorithm", "estimator", "extension", "rollout")
    for name in OWN["algorithms"][kind].split()
} | {"self_teacher_coefficient", "feedback_teacher_coefficient"}
WING = pytest.mark.wing("algorithms")
SECTIONS = {name: wing for wing, kinds in OWN.items() for name in kinds.get("section", "").split()}
"""The wing of each section that a recipe has of one."""


def marked(cases: Iterable[Any]) -> list[Any]:
    """The cases for `parametrize`. What an expected message says does not matter: of a tuple all
    but its last value are looked at."""
    made = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        needed = set(wings_of(str(values[:-1] or values)))
        made.append(pytest.param(*values, marks=[pytest.mark.wing(name) for name in needed]))
    return made


def wings_of(overrides: str) -> Iterator[str]:
    """The wings whose names or sections a text of overrides has."""
    if set(re.findall(r"\w+", overrides)) & ALGORITHMS:
        yield "algorithms"
    if "engine=vllm" in overrides or "engine.name=vllm" in overrides:
        yield "vllm"
    if re.search(r"parts\.(judge|reward_model)\b", overrides):
        yield "judges"
    sections = set(re.findall(r"(?:^|[\s'(])(\w+)[.=]", overrides))
    yield from (SECTIONS[name] for name in sections & SECTIONS.keys())


def needs(need: str, denying: str) -> str:
    """A pattern of the sentence about a choice whose need another one denies."""
    return re.escape(f"needs {need}, and {denying}").replace(r"\ ", " ")

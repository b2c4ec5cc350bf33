"""Cases of a table, marked where they name something of the wing of algorithms."""

import re
from collections.abc import Iterable
from typing import Any

import pytest

from turnwise.wings import OWN

NAMES = {
    name for kind in ("algorithm", "estimator", "rollout") for name in OWN["algorithms"][kind]
} | {"self_teacher_coefficient"}
WING = pytest.mark.wing("algorithms")


def marked(cases: Iterable[Any]) -> list[Any]:
    """The cases for `parametrize`. What an expected message says does not matter: of a tuple all
    but its last value are looked at."""
    made = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        named = set(re.findall(r"\w+", str(values[:-1] or values)))
        made.append(pytest.param(*values, marks=WING if named & NAMES else ()))
    return made

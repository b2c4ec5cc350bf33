"""Mathematical answers with the accepted ones: wrong, right in another form, and expensive; for
tests, and for benchmarks/mathematics_verifier.py."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from turnwise_environments.rewards.expressions import MAX_CHARACTERS


class Pair(NamedTuple):
    """An answer with the accepted one. Example: Pair("integer", "17.0", "17", True)."""

    kind: str
    given: str
    accepted: str
    right: bool


def pairs(name: str = "pairs") -> Iterator[Pair]:
    """The pairs of mathematical_pairs.txt, on which the verifier was not tuned, of
    mathematical_blind.txt, mathematical_forms.txt, or mathematical_numbers.txt."""
    for line in Path(__file__).with_name(f"mathematical_{name}.txt").read_text().splitlines():
        if not line.startswith("#"):
            kind, accepted, *forms = line.split(" | ")
            for right, written in zip((True, False), forms, strict=True):
                for given in written.split(" ;; ") if written != "~" else ():
                    yield Pair(kind, given, accepted, right)


FORMS = [Pair("form", "", r"\sqrt{2}", False), *pairs("forms")]
WRONG, RIGHT = (
    [(one.given, one.accepted) for one in FORMS if one.right is right] for right in (False, True)
)
ACCEPTED = r"x+\sqrt{2}"
EXPENSIVE = [
    r"(x^{2}+\sqrt{x+\sqrt{x+\sqrt{x}}})^{50}",  # more than its time
    "9^{9^{9}}",
    r"\binom{9999999999}{4999999999}",
    "(" * 12 + "x" + ")" * 12,
    r"\sin(\cos(" * 5 + "x" + "))" * 5,
    r"\exp(\exp(\exp(\exp(x))))",
    "-" * (MAX_CHARACTERS - 1) + "x",
    "(" * 10_000,
]
"""Wrong answers for ACCEPTED that take long to be worked out."""

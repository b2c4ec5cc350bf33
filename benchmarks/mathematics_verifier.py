"""What the verifier of mathematics takes and refuses, and how long it needs, beside math-verify's.

    .venv/bin/python -m benchmarks.mathematics_verifier
    .venv/bin/python -m benchmarks.mathematics_verifier answers.txt

The answers are those of the tests: wrong ones, right ones in another form, wrong ones that take
long to be worked out, and pairs that were written before the verifier was changed for them, by
kind. math-verify reads them as it does by default, as text and as LaTeX, with its own deadlines, in
a process that is ended after CAP seconds. A file has answers, one a line: each is given in every
wrapping, and a number with one more digit.
"""

import functools
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.tables import table
from mathematical_answers import ACCEPTED, EXPENSIVE, RIGHT, WRONG, Pair, pairs
from turnwise.errors import ToolError
from turnwise.evaluation.intervals import wilson
from turnwise.tools.isolated import Workers
from turnwise_environments.rewards.mathematics import is_right

CAP = 20.0
WRAPPINGS = (
    *("$%s$", r"\(%s\)", r"\[%s\]", "$$%s$$", "$%s$."),
    *(r"$\boxed{%s}$", r"$$\boxed{%s}$$", r"\boxed{$%s$}", r"\boxed{%s}."),
)
Verifier = Callable[[str, str], bool]
KINDS: dict[str, Sequence[tuple[str, str]]] = {
    "wrong": WRONG,
    "right in another form": RIGHT,
    "wrong and expensive": [(one, ACCEPTED) for one in EXPENSIVE],
}


def main() -> None:
    """Measure, and print."""
    if sys.argv[1:]:
        print(wrapped(dict.fromkeys(Path(sys.argv[1]).read_text().splitlines())))
        return
    rows = [
        {"answers": kind, "of": len(cases), "verifier": name, **measured(verifier, cases)}
        for kind, cases in KINDS.items()
        for name, verifier in {"math-verify": by_itself, "turnwise": is_right}.items()
    ]
    print(table(rows))
    print()
    drawn = list(pairs())
    kinds = {"all": drawn} | {
        kind: [one for one in drawn if one.kind == kind]
        for kind in dict.fromkeys(one.kind for one in drawn)
    }
    print(table([{"kind": kind} | mistaken(found) for kind, found in kinds.items()]))


def wrapped(answers: Iterable[str]) -> str:
    """A table of right answers that are refused in a wrapping, and of wrong ones that are taken."""
    kinds: dict[str, list[str]] = {}
    for one in answers:
        number = one.strip().lstrip("-").replace(",", "").replace(".", "", 1).isdecimal()
        words = "matrix" if "matrix" in one else "words" if r"\text" in one else "other"
        kinds.setdefault("number" if number else words, []).append(one)
    rows = []
    for kind, found in kinds.items():
        refused = [one for one in found for form in WRAPPINGS if not is_right(form % one, one)]
        numbers = found if kind == "number" else []
        more = [one for one in numbers for form in WRAPPINGS if is_right(form % f"{one}7", one)]
        tried = len(WRAPPINGS)
        row = {
            "answers": kind,
            "of": len(found),
            "refused": _share(len(refused), len(found) * tried),
        }
        rows.append(row | {"taken with one more digit": _share(len(more), len(numbers) * tried)})
    return table(rows)


def _share(wrongly: int, count: int) -> str:
    low, high = wilson(wrongly, count)
    return f"{wrongly} of {count} ({100 * low:.2f} - {100 * high:.2f}%)"


def mistaken(found: Sequence[Pair]) -> dict[str, str]:
    """Wrong answers that are taken, and right ones that are refused, with 95% intervals."""
    shown = {}
    for name, verifier in {"turnwise": is_right, "math-verify": by_itself}.items():
        for right, word in ((False, "taken"), (True, "refused")):
            asked = [one for one in found if one.right is right]
            wrongly = sum(verifier(one.given, one.accepted) is not right for one in asked)
            shown[f"{word} by {name}"] = _share(wrongly, len(asked))
    return shown


def measured(verifier: Verifier, cases: Sequence[tuple[str, str]]) -> dict[str, str]:
    """How many of the answers are taken, or end a process; and the time that they take."""
    taken, lost, seconds = 0, 0, []
    for given, accepted in cases:
        start = time.perf_counter()
        try:
            taken += verifier(given, accepted)
        except ToolError:
            lost += 1
        seconds.append(time.perf_counter() - start)
    return {
        "taken": str(taken),
        "without an answer": str(lost),
        "median": f"{1000 * sorted(seconds)[len(seconds) // 2]:.0f} ms",
        "longest": f"{max(seconds):.1f} s",
    }


@functools.cache
def by_itself(given: str, accepted: str) -> bool:
    """math-verify's verdict on the texts. Raises ToolError where its process has to be ended."""
    return bool(workers().call(plainly, given, accepted, seconds=CAP))


@functools.cache
def workers() -> Workers:
    return Workers(start)


def start() -> None:
    """Import what a worker needs."""
    import math_verify

    del math_verify


def plainly(given: str, accepted: str) -> bool:
    from math_verify import parse, verify

    gold = parse(f"${accepted}$")
    return any(verify(gold, parse(text)) for text in (given, f"${given}$"))


if __name__ == "__main__":
    from benchmarks import mathematics_verifier  # by the name that workers know its functions by

    mathematics_verifier.main()

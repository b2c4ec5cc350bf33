"""What the verifier of mathematics takes and refuses, and how long it needs, beside math-verify's.

    .venv/bin/python -m benchmarks.mathematics_verifier

The answers are those of the tests: wrong ones, right ones in another form, and wrong ones that take
long to be worked out. math-verify reads them as it does by default, as text and as LaTeX, with its
own deadlines, in a process that is ended after CAP seconds.
"""

import functools
import time
from collections.abc import Callable, Sequence

from benchmarks.tables import table
from tests.rewards.mathematical_answers import ACCEPTED, EXPENSIVE, RIGHT, WRONG
from turnwise.errors import ToolError
from turnwise.rewards.mathematics import is_right
from turnwise.tools.isolated import Workers

CAP = 20.0
Verifier = Callable[[str, str], bool]
KINDS: dict[str, Sequence[tuple[str, str]]] = {
    "wrong": WRONG,
    "right in another form": RIGHT,
    "wrong and expensive": [(one, ACCEPTED) for one in EXPENSIVE],
}


def main() -> None:
    """Measure, and print."""
    rows = [
        {"answers": kind, "of": len(cases), "verifier": name, **measured(verifier, cases)}
        for kind, cases in KINDS.items()
        for name, verifier in {"math-verify": by_itself, "turnwise": is_right}.items()
    ]
    print(table(rows))


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

"""A calculation written out, so that a model can do it in its thought, without a tool.

A sum is worked off from the left: of each line the first two numbers become one, and the others are
copied. Not here: any other arithmetic, which is one line of `a=b`.
"""

import re
from collections.abc import Sequence

from turnwise_environments.tools.calculator import calculate

_SUM = re.compile(r"[0-9]+(\+[0-9]+)+")


def written_out(expressions: Sequence[str]) -> str:
    """The work on each expression, in order.

    >>> written_out(["7 + 4 + 9"])
    '7+4+9=11+9=20'
    >>> written_out(["12 * 3", "36 - 7"])
    '12*3=36 36-7=29'
    """
    return " ".join(_lines(expression.replace(" ", "")) for expression in expressions)


def _lines(expression: str) -> str:
    if not _SUM.fullmatch(expression):
        return f"{expression}={calculate(expression)}"
    numbers = [int(number) for number in expression.split("+")]
    left = [[sum(numbers[:place]), *numbers[place:]] for place in range(1, len(numbers) + 1)]
    return "=".join("+".join(map(str, line)) for line in left)

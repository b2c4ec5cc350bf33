"""A function of a made repository as a template: what it says and what it does.

`$who`, `$what`, `$amount`, `$size` and `$rows` are words of a theme; the others are given by a
variant. Not here: the templates (`blocks_of_records.py`, `blocks_of_values.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Variants = Sequence[Mapping[str, str]]
ONE: Variants = ({},)


@dataclass(frozen=True)
class Block:
    """Example: Block("rules", "clamp", "value low high", "The value, ...", "return ...")."""

    module: str
    name: str
    arguments: str
    """Names of the parameters; each name has a way to draw values (see `packages.py`)."""
    words: str
    """The docstring: enough to write the function from."""
    code: str
    variants: Variants = ONE
    uses: tuple[str, ...] = ()
    """Blocks that this one calls."""


def each(**columns: str) -> Variants:
    """Variants from columns of values between bars: `each(n="1|2", word="one|two")`."""
    split = {name: values.split("|") for name, values in columns.items()}
    count = len(next(iter(split.values())))
    return [{name: values[place] for name, values in split.items()} for place in range(count)]

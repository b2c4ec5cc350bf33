"""WebShop's reward for a purchase (arXiv 2207.01206, section 3), from what was wanted and bought:

    r = r_type * (attributes + options + price) / (|wanted attributes| + |wanted options| + 1)

where `attributes` and `options` count those that match, and `price` is 1 if it is not too high.
r_type is 1 for the right kind of thing, else 0.5; 0.1 where titles hardly agree, 0 where they do
not at all. The formula matches words loosely: it gives 1 for 2 litres where 5 were wanted, and for
another kind of thing of the same brand. `is_as_wanted` does not.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MATCHING = 85
"""A ratio of words above this is a match."""


@dataclass(frozen=True)
class Wanted:
    query: str
    """The kind of thing, as one would search for it."""
    category: tuple[str, ...]
    """Categories from the widest to the narrowest."""
    nouns: frozenset[str]
    """Nouns of the title, in lower case."""
    attributes: tuple[str, ...]
    options: Mapping[str, str]
    """Values by name, such as a colour and a size."""
    highest_price: float


@dataclass(frozen=True)
class Bought:
    """A bought product, with the options that were chosen."""

    query: str
    category: tuple[str, ...]
    nouns: frozenset[str]
    attributes: tuple[str, ...]
    texts: tuple[str, ...]
    """Title, features, description: an attribute that stands there counts too."""
    price: float
    options: Mapping[str, str] = field(default_factory=dict)


NOTHING_BOUGHT = {"type": 0.0, "attributes": 0.0, "options": 0.0, "price": 0.0}
"""The parts of a reward without a purchase."""


def webshop_reward(bought: Bought, wanted: Wanted) -> tuple[float, dict[str, float]]:
    """The reward, from 0 to 1, and its parts, each from 0 to 1."""
    kind = type_score(bought, wanted)
    texts = " ".join(bought.texts).lower()
    attributes = sum(
        one.lower() in texts or _any_matches(one, bought.attributes) for one in wanted.attributes
    )
    chosen = list(bought.options.values())
    options = sum(_any_matches(one, chosen) for one in wanted.options.values())
    price = bought.price <= wanted.highest_price
    count = len(wanted.attributes) + len(wanted.options) + 1
    parts = {
        "type": kind,
        "attributes": attributes / max(len(wanted.attributes), 1),
        "options": options / len(wanted.options) if wanted.options else 1.0,
        "price": float(price),
    }
    return kind * (attributes + options + price) / count, parts


def is_as_wanted(bought: Bought, wanted: Wanted) -> bool:
    """Whether a purchase is of the very kind, to the letter, and not too expensive."""
    return share_as_wanted(bought, wanted) == 1.0


def share_as_wanted(bought: Bought, wanted: Wanted) -> float:
    """The attributes, options and the price that are as wanted, to the letter, as a share of all
    that is wanted; 0 for another kind of thing."""
    if bought.query != wanted.query:
        return 0.0
    right = [
        *(one in bought.attributes for one in wanted.attributes),
        *(bought.options.get(name) == value for name, value in wanted.options.items()),
        bought.price <= wanted.highest_price,
    ]
    return sum(right) / len(right)


def type_score(bought: Bought, wanted: Wanted) -> float:
    alike = len(set(bought.category) & set(wanted.category)) >= 2
    nouns = wanted.nouns
    titles = len(bought.nouns & nouns) / len(nouns) if nouns else 0.2
    if titles == 0.0:
        return 0.0
    if titles < 0.1:
        return 0.1
    return 1.0 if bought.query == wanted.query or alike or titles > 0.2 else 0.5


def token_set_ratio(one: str, other: str) -> int:
    """Similarity of two texts as sets of words, 0 to 100, as fuzzy matching has it: 100 where all
    words of one are in the other, else the best ratio of the common words, alone and with the rest.

    >>> token_set_ratio("dark blue", "blue"), token_set_ratio("red", "blue")
    (100, 29)
    """
    left, right = _words(one), _words(other)
    common = " ".join(sorted(left & right))
    if not left or not right:
        return 0
    if common and (left <= right or right <= left):
        return 100
    first = f"{common} {' '.join(sorted(left - right))}".strip()
    second = f"{common} {' '.join(sorted(right - left))}".strip()
    pairs = [(first, second), *([(common, first), (common, second)] if common else [])]
    return round(max(_ratio(*pair) for pair in pairs))


def _any_matches(wanted: str, found: Sequence[str]) -> bool:
    return any(token_set_ratio(wanted, one) > MATCHING for one in found)


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", text.lower()))


def _ratio(one: str, other: str) -> float:
    """Twice the longest common subsequence, in percent of both lengths."""
    row = [0] * (len(other) + 1)
    for mark in one:
        before = 0
        for place, other_mark in enumerate(other, start=1):
            kept = row[place]
            row[place] = before + 1 if mark == other_mark else max(kept, row[place - 1])
            before = kept
    return 200 * row[-1] / (len(one) + len(other))

"""Numeric answers compared with the accepted one: the same quantity, written in any usual way.

An answer is one number and at most its unit, and nothing else: `$1,234.50`, `3/4`, `1 1/2`, `24
clips`, `2.5 kg`, `10%`, `\\boxed{7}`. Whatever else is there makes it wrong, so that a list of
guesses, `not 5`, `1 = 2` and an expression that was not worked out (`48/2`) earn nothing. Rules:

- values are exact: 0.1 is 1/10, and 24.000001 is not 24; only where the accepted value has no
  last digit (1/3) may an answer be rounded, correctly, to six places or more;
- `%` is a unit and no factor: `10%` is 10 percent, never 0.1;
- with a unit that is known, another one is converted (180 minutes are 3 hours) or wrong (5 cm for
  5 km, `$5` for 5 apples), and none at all is right;
- LaTeX's fractions, spaces and words are read as what they show: `\\frac{3}{4}`, `12\\text{ cm}`;
- with none known, as in GSM8K, whatever unit is given is taken to be the right one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from turnwise_environments.rewards.expressions import unwrapped

MAX_CHARACTERS, MAX_WRITTEN = 80, 300
"""Characters of a number with its unit, and of all that is written around it, at most."""
MIN_PLACES = 6
"""Decimal places of an answer that stands for a value without a last digit."""
MAX_UNIT_WORDS = 4

CURRENCIES = {"$": "dollar", "€": "euro", "£": "pound", "¥": "yen", "₹": "rupee"}
_UNITS = {
    "length": "mm millimeter 1/1000, cm centimeter centimetre 1/100, m meter metre 1, "
    "km kilometer kilometre 1000",
    "imperial length": "inch in 1, foot feet ft 12, yard yd 36, mile mi 63360",
    "time": "second sec s 1, minute min 60, hour hr h 3600, day 86400, week 604800",
    "mass": "g gram 1, kg kilogram 1000",
    "imperial mass": "ounce oz 1, pound lb 16, ton 32000",
    "angle": "radian rad 1",
    "volume": "ml milliliter millilitre 1, l liter litre 1000",
    "money": "cent 1, dollar usd 100",
}
CONVERSIONS = {
    name.replace("_", " "): (measure, Fraction(entry.split()[-1]))
    for measure, entries in _UNITS.items()
    for entry in entries.split(", ")
    for name in entry.split()[:-1]
}
"""Unit in the singular -> what it measures, and how many of the smallest one it is."""
_POWERS = {"²": 2, "³": 3}
_ALIASES = {"percent": "%", "per cent": "%", "mph": "mile/hour", "kph": "kilometer/hour"}
SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_NO_UNITS = re.compile(
    "a|about|almost|an|and|approximately|around|at|between|either|equals?|half|if|is|least|less|"
    "maybe|minus|more|most|neither|no|nor|not|or|over|perhaps|plus|than|the|times|to|under|unless|"
    "wrong|zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|trillion|k|bn|"
    "pi|theta|factorial|squared|cubed|sqrt|log|mod|"
    "(?:third|quarter|fourth|fifth|sixth|seventh|eighth|ninth|tenth)s?"
)
"""Words that change or hedge a number: an answer with one of them after it is wrong."""
_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
)
_SPELLED = {word: str(number) for number, word in enumerate(_WORDS.split())}
_FILLERS = ("altogether", "each", "left")
"""Words after a unit that change nothing."""

_FRACTION = re.compile(
    r"\\[dtc]?frac\s*(?:\{\s*([-+]?)\s*([0-9]+)\s*\}|()([0-9]))"
    r"\s*(?:\{\s*([-+]?)\s*([0-9]+)\s*\}|()([0-9])(?![0-9]))"
)
_REPEATING = re.compile(
    r"^([-+]?[0-9]*)\.(?:([0-9]*)\\overline\s*\{([0-9]+)\}|([0-9]*?)([0-9]+?)\5+\s*\\dots$)"
)
_SHOWN = tuple(
    (re.compile(pattern), shown)
    for pattern, shown in (
        (r"\^\s*(?:\\circ|o|\{\s*(?:\\circ|(?:\\text ?\{)?o\}?)\s*\})|\\degree|°", " degrees "),
        (r"\\text\s*\{([^{}]*)\}", r" \1 "),
        (r"\bdegrees? +(?:c|celsius)\b", "celsius"),
        (r"^([-+]?)\s*\(([^()]*)\)", r"\1\2"),
        (r"(?<![\w^}])\{\s*([-+0-9./ ]+)\s*\}(?![\w{])", r"\1"),
        (r"(?<=[0-9])\s*\\over\s*(?=[0-9])", "/"),
        (r"(?<=[0-9])\{,\}(?=[0-9])", ","),
        (r"(?<=[0-9,])\\[!,;: ]\s*(?=[0-9]{3}(?![0-9/]))", ""),
        (r"\\[!,;: ]|~", " "),
        (
            r"(?<=[0-9])\s*(?:\\times|\\cdot|[x*])\s*10\s*\^\s*(?:\{\s*([-+]?\d+)\s*\}|(-?\d+))",
            r"e\1\2",
        ),
        (r"(?<![0-9.^{,/])10\s*\^\s*(?:\{\s*([-+]?\d+)\s*\}|(-?\d+))", r"1e\1\2"),
        (r"(?<=[a-z])\s*\^\s*(?:2|\{2\})|(?<=[a-z]) (?=²)", "²"),
        (r"(?<=[a-z])\s*\^\s*(?:3|\{3\})", "³"),
        (r"^us(?:d |\$)", "$"),
        (r"^([-+]?[0-9][0-9.,]*) ?([€£¥₹])$", r"\2\1"),
        (r"(?:\ban? |(?<=[0-9])/)(?=(?:minute|hour|day|week|month|year)\b)", " per "),
        (r"\bleft[ -]?over\b", "left"),
    )
)
"""Patterns, and what they show to a reader."""
_ASSIGNED = re.compile(r"^[a-z]\s*=(?!=)\s*")

_WHOLE = r"[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+"
_NUMBER = re.compile(
    rf"""(?P<sign>[-+]?)\s*(?P<currency>[$€£¥₹]?)\s*(?P<second_sign>[-+]?)
    (?:(?P<mixed>[0-9]+)\s+(?=[0-9]+/))?
    (?:(?P<top>[0-9]+)/(?P<bottom>[0-9]+)
      |(?P<whole>{_WHOLE}|(?=\.[0-9]))(?:\.(?P<places>[0-9]*))?(?:e(?P<exponent>[-+]?[0-9]{{1,2}}))?)
    (?P<unit>(?:\s*%|\s*-?\s*[a-z°][a-z'.²³/°-]*(?:\s+[a-z][a-z'.²³/-]*)*)?)""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Quantity:
    """A number with its unit. Example: read_quantity("$1,250.50") is
    Quantity(Fraction(2501, 2), "dollar", places=2)."""

    value: Fraction
    unit: str = ""
    """The unit in the singular and lower case; empty where none is given."""
    places: int = 0
    """Digits after the decimal point, as it was written."""


def matches(answer: str | None, accepted: str, units: Sequence[str] | None = None) -> bool:
    """Whether an answer is the accepted number. `units` are the names of the unit that is asked
    for, the first of them deciding conversions; None for the accepted answer's, if it has one; an
    empty list for a number without a unit. Raises ValueError for an accepted answer that is not a
    number itself: that is a broken task."""
    wanted = read_quantity(accepted)
    if wanted is None:
        raise ValueError(f"the accepted answer {accepted!r} is not a number")
    given = read_answer(answer)
    if given is None:
        return False
    asked = [wanted.unit] if units is None and wanted.unit else units
    factor = Fraction(1) if asked is None else _factor(given.unit, asked)
    if factor is None:
        return False
    return _equal(given, factor, wanted.value)


def read_answer(answer: str | None) -> Quantity | None:
    """The quantity that an answer is; it may be given to a letter: `x = 5`, or be a word."""
    first, *more = _ASSIGNED.sub("", _shown(answer or "")).split(" ", 1)
    return read_quantity(" ".join([_SPELLED.get(first, first), *more]))


def read_quantity(text: str) -> Quantity | None:
    """The one number that a text consists of; None for anything else.

    >>> read_quantity("1 1/2 hours")
    Quantity(value=Fraction(3, 2), unit='hour', places=0)
    """
    bare = _shown(text)
    found = _NUMBER.fullmatch(bare) if len(bare) <= MAX_CHARACTERS else None
    if found is None or (found["sign"] and found["second_sign"]):
        return None
    unit = _unit(found["unit"], found["currency"])
    value = _magnitude(found)
    if unit is None or value is None:
        return None
    name, scale = unit
    negative = "-" in (found["sign"], found["second_sign"])
    return Quantity((-value if negative else value) * scale, name, len(found["places"] or ""))


def _shown(text: str) -> str:
    """Take an answer out of its wrapping, in lower case."""
    if len(text) > MAX_WRITTEN:
        return text
    bare = unwrapped(text).lower().replace("\\%", "%").replace("\\$", "$")
    bare = _REPEATING.sub(_repeating, _FRACTION.sub(_fraction, bare))
    for pattern, shown in _SHOWN:
        bare = " ".join(pattern.sub(shown, bare).split())
    return bare.removesuffix(".").strip()


def _fraction(found: re.Match[str]) -> str:
    sign, top, other_sign, bottom = (one for one in found.groups() if one is not None)
    return f" {'-' if '-' in (sign, other_sign) and sign != other_sign else ''}{top}/{bottom}"


def _repeating(found: re.Match[str]) -> str:
    """Write a decimal whose last digits go on for ever as a fraction."""
    whole, places, again = found[1], found[2] or found[4] or "", found[3] or found[5]
    rest = Fraction(int(again), 10 ** len(again) - 1) / 10 ** len(places)
    value = Fraction(f"{whole.lstrip('+-') or 0}.{places or 0}") + rest
    return f"{'-' if whole.startswith('-') else ''}{value}"


def _magnitude(found: re.Match[str]) -> Fraction | None:
    if found["top"] is None:
        exponent = Fraction(10) ** int(found["exponent"] or 0)
        whole = (found["whole"] or "0").replace(",", "")
        return Fraction(f"{whole}.{found['places'] or 0}") * exponent
    top, bottom = int(found["top"]), int(found["bottom"])
    if bottom < 2 or Fraction(top, bottom).denominator != bottom:
        return None  # 48/2 is a division that was not done, and n/0 is nothing
    if found["mixed"] is not None and top > bottom:
        return None
    return int(found["mixed"] or 0) + Fraction(top, bottom)


def _unit(text: str, currency: str) -> tuple[str, int] | None:
    """(unit in the singular, scale); None for words that are no unit."""
    words = [word.strip(".") for word in text.lstrip(" -").split()]
    words = [word for word in words if word not in _FILLERS]
    scale = 1
    if words and words[0].rstrip("s") in SCALES:
        scale = SCALES[words.pop(0).rstrip("s")]
        words = words[1:] if words[:1] == ["of"] else words
    if len(words) > MAX_UNIT_WORDS or any(map(_NO_UNITS.fullmatch, words)):
        return None
    if any(word.rstrip("s") in SCALES for word in words):
        return None
    name = _named(" ".join(words))
    if name.rstrip("²³") == "unit":
        name = ""
    if name[-1:] in _POWERS and "/" not in name and _measure(name) is None:
        return None  # x² is no unit
    if not currency:
        return name, scale
    if name.startswith("per "):
        return f"{CURRENCIES[currency]} {name}", scale
    same = name in ("", CURRENCIES[currency], "usd"[: 3 * (currency == "$")])
    return (CURRENCIES[currency], scale) if same else None


def singular(word: str) -> str:
    """A unit's name in the singular, roughly: for comparing, not for writing.

    >>> [singular(word) for word in ("boxes", "berries", "hours", "glass")]
    ['box', 'berry', 'hour', 'glass']
    """
    if word.endswith("ies") and len(word) > 4:
        word = f"{word[:-3]}y"
    elif re.search("(?:x|ch|sh|ss)es$", word):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss") and len(word) > 1:
        word = word[:-1]
    return word


def _factor(unit: str, units: Sequence[str]) -> Fraction | None:
    """The factor from a number of `unit` to one of `units[0]`; None where it is wrong."""
    wanted = [_named(name) for name in units]
    if not unit or unit in wanted:
        return Fraction(1)
    given, asked = _measure(unit), _measure(wanted[0]) if wanted else None
    if given is None or asked is None or given[0] != asked[0]:
        return None
    return given[1] / asked[1]


def _named(unit: str) -> str:
    """A unit's name as it is compared: in the singular, `ft²` for square feet."""
    words = re.sub(r"\s+per\s+", "/", _ALIASES.get(unit, unit)).rstrip("²³").split()
    power = {"square": "²", "sq": "²", "cubic": "³", "cu": "³"}.get(words[0]) if words[1:] else None
    words = words[1:] if power else words
    power = power or unit[len(unit.rstrip("²³")) :]
    if unit in CONVERSIONS or not words:
        return unit
    return "/".join(singular(one) for one in " ".join(words).split("/")) + power


def _measure(unit: str) -> tuple[str, Fraction] | None:
    """Look up the dimension of a known unit, and its size; of areas, volumes, and speeds too."""
    above, per, below = unit.partition("/")
    if per:
        top, bottom = _measure(above), _measure(below)
        return (f"{top[0]}/{bottom[0]}", top[1] / bottom[1]) if top and bottom else None
    power = _POWERS.get(unit[-1:], 1)
    found = CONVERSIONS.get(unit.rstrip("²³"))
    return found and (f"{found[0]} {power}", found[1] ** power)


def is_unit(text: str) -> bool:
    """Whether a text is a known unit, such as `cm^2`, `square feet` or `units`."""
    name = _named(text.replace("^2", "²").replace("^3", "³"))
    return name.rstrip("²³") == "unit" or _measure(name) is not None


def _equal(given: Quantity, factor: Fraction, wanted: Fraction) -> bool:
    if given.value * factor == wanted:
        return True
    if factor != 1 or given.places < MIN_PLACES or _has_last_digit(wanted):
        return False
    scale = 10**given.places
    return bool(abs(given.value - wanted) * scale * 2 <= 1)


def _has_last_digit(value: Fraction) -> bool:
    """Whether a power of ten is a multiple of the denominator: none has more twos and fives."""
    return bool(10 ** value.denominator.bit_length() % value.denominator == 0)

"""The functions that made repositories consist of, as templates: what each says and what it does.

`$who`, `$what`, `$amount`, `$size` and `$rows` are words of a theme; the others are given by a
variant. No function loops without end, whatever is changed in it: there is no `while` and no
recursion. Not here: how repositories are put together (`packages.py`).
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


def _each(**columns: str) -> Variants:
    """Variants from columns of values between bars: `_each(n="1|2", word="one|two")`."""
    split = {name: values.split("|") for name, values in columns.items()}
    count = len(next(iter(split.values())))
    return [{name: values[place] for name, values in split.items()} for place in range(count)]


LINES = (
    Block(
        "lines",
        "split_line",
        "line",
        "The parts of a line between the characters `$sep`, without the blanks around them.",
        'return [part.strip() for part in line.split("$sep")]',
        _each(sep=";|,|:|/"),
    ),
    Block(
        "lines",
        "parse_line",
        "line",
        "A line as a dict of $who and $what (texts), $amount and $size (whole numbers), in this "
        "order;\n    None for a line that is blank or begins with `$mark`.",
        'line = line.strip()\nif not line or line.startswith("$mark"):\n    return None\n'
        "$who, $what, $amount, $size = split_line(line)\n"
        'return {"$who": $who, "$what": $what, "$amount": int($amount), "$size": int($size)}',
        _each(mark="#|!|--"),
        ("split_line",),
    ),
    Block(
        "lines",
        "parse",
        "text",
        "All $rows of a text with one on each line; what `parse_line` gives None for is left out.",
        "rows = [parse_line(line) for line in text.splitlines()]\n"
        "return [row for row in rows if row is not None]",
        ONE,
        ("parse_line",),
    ),
)

ROWS = (
    Block(
        "rows",
        "of_$who",
        "rows name",
        "The $rows of one $who. Upper and lower case are the same.",
        'return [row for row in rows if row["$who"].lower() == name.lower()]',
    ),
    Block(
        "rows",
        "with_$size",
        "rows limit",
        "The $rows whose $size is $words.",
        'return [row for row in rows if row["$size"] $op limit]',
        _each(
            op=">|>=|<|<=",
            words="above the limit|the limit or above|below the limit|the limit or below",
        ),
    ),
    Block(
        "rows",
        "between",
        "rows low high",
        "The $rows with $amount from low to high, $words.",
        'return [row for row in rows if low $first row["$amount"] $last high]',
        _each(
            first="<=|<=|<|<",
            last="<=|<|<=|<",
            words="both included|high not included|low not included|neither included",
        ),
    ),
    Block(
        "rows",
        "page",
        "rows number",
        "The $rows of a page, $n on each; the first page is number $first. Empty beyond the end.",
        "start = (number - $first) * $n\nreturn rows[start : start + $n] if start >= 0 else []",
        _each(n="2|3|2|3", first="1|1|0|0"),
    ),
    Block(
        "rows",
        "newest",
        "rows count",
        "The last $rows, at most count of them, $words.",
        "last = rows[-count:] if count > 0 else []\nreturn $result",
        _each(result="last|last[::-1]", words="in their order|the last one first"),
    ),
    Block(
        "rows",
        "without_repetitions",
        "rows",
        "The $rows without those whose $who and $what came before.",
        "seen, kept = set(), []\nfor row in rows:\n"
        '    key = (row["$who"], row["$what"])\n    if key not in seen:\n'
        "        seen.add(key)\n        kept.append(row)\nreturn kept",
    ),
    Block(
        "rows",
        "ordered",
        "rows",
        "The $rows by $key, $words; those with the same one by $who.",
        'return sorted(rows, key=lambda row: ($sign row["$key_code"], row["$who"]))',
        _each(
            key="$amount|$amount|$size|$size",
            key_code="$amount|$amount|$size|$size",
            sign="-|+|-|+",
            words="largest first|smallest first|largest first|smallest first",
        ),
    ),
    Block(
        "rows",
        "longest_streak",
        "rows limit",
        "How many $rows in a row have $size $words, at most; 0 if none has.",
        'longest = current = 0\nfor row in rows:\n    if row["$size"] $op limit:\n'
        "        current += 1\n    else:\n        current = 0\n"
        "    longest = max(longest, current)\nreturn longest",
        _each(op=">=|>|<", words="of the limit or above|above the limit|below the limit"),
    ),
)

TOTALS = (
    Block(
        "totals",
        "total",
        "rows",
        "The sum of $words over all $rows; 0 if there are none.",
        "return sum($value for row in rows)",
        _each(
            words="$amount times $size|$amount|$size|$amount plus $size",
            value='row["$amount"] * row["$size"]|row["$amount"]|row["$size"]'
            '|row["$amount"] + row["$size"]',
        ),
    ),
    Block(
        "totals",
        "totals_by_$who",
        "rows",
        "For each $who the `total` of its $rows, in the order in which they first come.",
        "groups = {}\nfor row in rows:\n"
        '    groups.setdefault(row["$who"], []).append(row)\n'
        "return {$who: total(group) for $who, group in groups.items()}",
        ONE,
        ("total",),
    ),
    Block(
        "totals",
        "top",
        "rows count",
        "Each $who with the largest totals, at most count, largest first; equal ones by the "
        "alphabet.",
        "totals = totals_by_$who(rows)\n"
        "ranked = sorted(totals, key=lambda $who: (-totals[$who], $who))\n"
        "return ranked[: max(count, 0)]",
        ONE,
        ("totals_by_$who",),
    ),
    Block(
        "totals",
        "average",
        "rows",
        "The mean $amount of the $rows, rounded $words to a whole number; 0 if there are none.",
        'if not rows:\n    return 0\nwhole = sum(row["$amount"] for row in rows)\nreturn $result',
        _each(words="down|up", result="whole // len(rows)|-(-whole // len(rows))"),
    ),
    Block(
        "totals",
        "counts_by_$what",
        "rows",
        "How many $rows each $what has, as a dict, by the alphabet.",
        "counts = {}\nfor row in rows:\n"
        '    counts[row["$what"]] = counts.get(row["$what"], 0) + 1\n'
        "return dict(sorted(counts.items()))",
    ),
    Block(
        "totals",
        "percent",
        "rows name",
        "The part of all $size that one $who has, in percent, rounded down; 0 if there is none.",
        'whole = sum(row["$size"] for row in rows)\n'
        'part = sum(row["$size"] for row in rows if row["$who"] == name)\n'
        "return 100 * part // whole if whole > 0 else 0",
    ),
    Block(
        "totals",
        "running",
        "rows",
        "The sums of $amount up to each row, that one $words.",
        "sums, so_far = [], 0\nfor row in rows:\n$body\nreturn sums",
        _each(
            words="included|not included",
            body='    so_far += row["$amount"]\n    sums.append(so_far)'
            '|    sums.append(so_far)\n    so_far += row["$amount"]',
        ),
    ),
    Block(
        "totals",
        "middle",
        "rows",
        "The median of $size: the middle one in order, the $words of the two middle ones if they "
        "are even in\n    number; 0 of none.",
        'sizes = sorted(row["$size"] for row in rows)\nif not sizes:\n    return 0\n'
        "return sizes[$place // 2]",
        _each(words="larger|smaller", place="len(sizes)|(len(sizes) - 1)"),
    ),
    Block(
        "totals",
        "changes",
        "rows",
        "By how much $amount is larger than that of the row before, for each row but the first.",
        'amounts = [row["$amount"] for row in rows]\n'
        "return [later - earlier for earlier, later in zip(amounts, amounts[1:])]",
    ),
)

RULES = (
    Block(
        "rules",
        "discount",
        "value",
        "The percentage for a value: $high from $b on, $low from $a on, else 0.",
        "if value >= $b:\n    return $high\nif value >= $a:\n    return $low\nreturn 0",
        _each(a="20|30|50", b="60|80|90", low="5|3|4", high="10|8|15"),
    ),
    Block(
        "rules",
        "reduced",
        "value",
        "The value less its `discount`, rounded down to a whole number.",
        "return value * (100 - discount(value)) // 100",
        ONE,
        ("discount",),
    ),
    Block(
        "rules",
        "fee",
        "value",
        "$base, and $more for each one above $free; 0 for a value of 0.",
        "if value == 0:\n    return 0\nreturn $base + $more * max(value - $free, 0)",
        _each(base="3|5|10", more="2|3|4", free="10|20|5"),
    ),
    Block(
        "rules",
        "in_steps",
        "value",
        "The value, rounded $words to a multiple of $step.",
        "return $result",
        _each(
            words="down|up|down|up",
            step="5|5|12|12",
            result="value // 5 * 5|(value + 4) // 5 * 5|value // 12 * 12|(value + 11) // 12 * 12",
        ),
    ),
    Block(
        "rules",
        "clamp",
        "value low high",
        "The value, but not below low and not above high; low where low is above high.",
        "return max(low, min(value, high))",
    ),
    Block(
        "rules",
        "level",
        "value",
        '"low" below $a, "high" above $b, else "middle".',
        'if value < $a:\n    return "low"\nreturn "high" if value > $b else "middle"',
        _each(a="10|15|25", b="40|55|70"),
    ),
)

TEXT = (
    Block(
        "text",
        "fit",
        "word width",
        "The text in exactly width characters: cut at the end, or filled with `$fill` $words.",
        'return word[:width].$method(width, "$fill")',
        _each(
            fill=" |.|_|.",
            words="at the end|at the end|at the beginning|at the beginning",
            method="ljust|ljust|rjust|rjust",
        ),
    ),
    Block(
        "text",
        "columns",
        "cells width",
        "The cells with `$bar` between them, each made to `fit` the width.",
        'return "$bar".join(fit(str(cell), width) for cell in cells)',
        [{"bar": " | "}, {"bar": "  "}, {"bar": " / "}],
        ("fit",),
    ),
    Block(
        "text",
        "initials",
        "title",
        "The first letter of each word, in upper case$words.",
        'return "$dot".join(word[0].upper() for word in title.split())$end',
        _each(words="|, with a dot after each|, with `-` between them", dot="|.|-", end='| + "."|'),
    ),
    Block(
        "text",
        "slug",
        "title",
        "The text in lower case, without blanks at its ends and with `$dash` for those inside.",
        'return title.strip().lower().replace(" ", "$dash")',
        _each(dash="-|_"),
    ),
    Block(
        "text",
        "with_separators",
        "value",
        "A thousand times the value as text, with `$mark` between groups of three digits.",
        "digits = str(value * 1000)\nfirst = len(digits) % 3\n"
        "groups = [digits[:first]] if first else []\n"
        "groups += [digits[place : place + 3] for place in range(first, len(digits), 3)]\n"
        'return "$mark".join(groups)',
        [{"mark": mark} for mark in (",", " ", "'")],
    ),
)

REPORT = (
    Block(
        "report",
        "summary",
        "text",
        "How many $rows a text has, and their `total`, as in `3 $rows, total 12`.",
        'rows = parse(text)\nreturn f"{len(rows)} $rows, total {total(rows)}"',
        ONE,
        ("parse", "total"),
    ),
    Block(
        "report",
        "best",
        "text count",
        "What `top` gives for the $rows of a text, numbered from 1: `1. name`.",
        "names = top(parse(text), count)\n"
        'return [f"{place}. {name}" for place, name in enumerate(names, 1)]',
        ONE,
        ("parse", "top"),
    ),
    Block(
        "report",
        "bill",
        "text name",
        "What one $who has to pay for its $rows in a text: their `total`, `reduced`.",
        "return reduced(total(of_$who(parse(text), name)))",
        ONE,
        ("parse", "total", "of_$who", "reduced"),
    ),
    Block(
        "report",
        "table",
        "text width",
        "The $rows of a text as lines: $who, $what and $amount in `columns` of a width.",
        'return [\n    columns([row["$who"], row["$what"], row["$amount"]], width)\n'
        "    for row in parse(text)\n]",
        ONE,
        ("parse", "columns"),
    ),
    Block(
        "report",
        "fees",
        "text",
        "For each row of a text, $who and the `fee` of its $amount, as a list of tuples.",
        'return [(row["$who"], fee(row["$amount"])) for row in parse(text)]',
        ONE,
        ("parse", "fee"),
    ),
    Block(
        "report",
        "levels",
        "text",
        "For each `level` of $size that the $rows of a text have, how many have it.",
        "found = {}\nfor row in parse(text):\n"
        '    name = level(row["$size"])\n    found[name] = found.get(name, 0) + 1\nreturn found',
        ONE,
        ("parse", "level"),
    ),
    Block(
        "report",
        "usual",
        "text",
        "The `average` and the `middle` of the $rows of a text, as a pair.",
        "rows = parse(text)\nreturn average(rows), middle(rows)",
        ONE,
        ("parse", "average", "middle"),
    ),
    Block(
        "report",
        "shown",
        "text number",
        "The $what of each row on a `page` of a text's $rows, after they are `ordered`.",
        'return [row["$what"] for row in page(ordered(parse(text)), number)]',
        ONE,
        ("parse", "page", "ordered"),
    ),
)

BLOCKS = {block.name: block for block in (*LINES, *ROWS, *TOTALS, *RULES, *TEXT, *REPORT)}
MODULES = {
    "lines": "Reads $rows from text.",
    "rows": "Chooses among $rows.",
    "totals": "Sums and counts of $rows.",
    "rules": "Rules for numbers.",
    "text": "Makes text for people.",
    "report": "What is told of a text with $rows.",
}

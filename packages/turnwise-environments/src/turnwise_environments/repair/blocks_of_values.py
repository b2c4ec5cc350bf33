"""Templates of functions for single values and texts, and of reports that use the others.

No function loops without end, whatever is changed in it: there is no `while` and no recursion. Not
here: functions of records (`blocks_of_records.py`).
"""

from turnwise_environments.repair.block import ONE, Block, each

RULES = (
    Block(
        "rules",
        "discount",
        "value",
        "The percentage for a value: $high from $b on, $low from $a on, else 0.",
        "if value >= $b:\n    return $high\nif value >= $a:\n    return $low\nreturn 0",
        each(a="20|30|50", b="60|80|90", low="5|3|4", high="10|8|15"),
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
        each(base="3|5|10", more="2|3|4", free="10|20|5"),
    ),
    Block(
        "rules",
        "in_steps",
        "value",
        "The value, rounded $words to a multiple of $step.",
        "return $result",
        each(
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
        each(a="10|15|25", b="40|55|70"),
    ),
)

TEXT = (
    Block(
        "text",
        "fit",
        "word width",
        "The text in exactly width characters: cut at the end, or filled with `$fill` $words.",
        'return word[:width].$method(width, "$fill")',
        each(
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
        each(words="|, with a dot after each|, with `-` between them", dot="|.|-", end='| + "."|'),
    ),
    Block(
        "text",
        "slug",
        "title",
        "The text in lower case, without blanks at its ends and with `$dash` for those inside.",
        'return title.strip().lower().replace(" ", "$dash")',
        each(dash="-|_"),
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

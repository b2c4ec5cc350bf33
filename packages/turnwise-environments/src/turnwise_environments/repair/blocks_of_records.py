"""Templates of functions that read records, choose among them, and count them.

No function loops without end, whatever is changed in it: there is no `while` and no recursion. Not
here: rules, texts and reports (`blocks_of_values.py`).
"""

from turnwise_environments.repair.block import ONE, Block, each

LINES = (
    Block(
        "lines",
        "split_line",
        "line",
        "The parts of a line between the characters `$sep`, without the blanks around them.",
        'return [part.strip() for part in line.split("$sep")]',
        each(sep=";|,|:|/"),
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
        each(mark="#|!|--"),
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
        each(
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
        each(
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
        each(n="2|3|2|3", first="1|1|0|0"),
    ),
    Block(
        "rows",
        "newest",
        "rows count",
        "The last $rows, at most count of them, $words.",
        "last = rows[-count:] if count > 0 else []\nreturn $result",
        each(result="last|last[::-1]", words="in their order|the last one first"),
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
        each(
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
        each(op=">=|>|<", words="of the limit or above|above the limit|below the limit"),
    ),
)

TOTALS = (
    Block(
        "totals",
        "total",
        "rows",
        "The sum of $words over all $rows; 0 if there are none.",
        "return sum($value for row in rows)",
        each(
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
        each(words="down|up", result="whole // len(rows)|-(-whole // len(rows))"),
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
        each(
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
        each(words="larger|smaller", place="len(sizes)|(len(sizes) - 1)"),
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

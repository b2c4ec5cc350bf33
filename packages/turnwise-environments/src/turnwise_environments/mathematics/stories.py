"""Templates of word problems: a beginning, changes, and a question, each one sentence or two.

A story follows one amount. In a template's text and sum, `{v}` is the amount so far and `{a}`,
`{b}`, `{c}` are new numbers; persons and things are filled in from NAMES and THINGS. Not here: how
templates become a problem (`problems.py`).
"""

from dataclasses import dataclass

NAMES = ("Ada", "Ben", "Eva", "Ida", "Jan", "Leo", "Max", "Mia", "Noa", "Sam", "Tom", "Zoe")
THINGS = ("apples", "beads", "books", "cards", "eggs", "nuts", "pens", "plums", "shells", "stamps")


@dataclass(frozen=True)
class Template:
    """A part of a story. Example: Template("{name} finds {a} more.", "{v} + {a}", "a:2-40")."""

    text: str
    sum: str
    """The sum to work out in one step; empty where there is none."""
    numbers: str
    """The range of each new number: `a:2-40 b:5-95/5` (from, to, in steps of)."""
    unit: str = ""
    """Unit of the amount from here on; empty where it stays."""


@dataclass(frozen=True)
class Kind:
    """Templates that fit together: a beginning, any changes, a question."""

    beginnings: tuple[Template, ...]
    changes: tuple[Template, ...]
    questions: tuple[Template, ...]


KINDS = {
    "things": Kind(
        (
            Template("{name} has {a} {things}.", "", "a:12-90", "{things}"),
            Template(
                "{name} buys {a} boxes with {b} {things} in each.",
                "{a} * {b}",
                "a:2-12 b:3-24",
                "{things}",
            ),
            Template(
                "{name} has {a} red {things} and {b} blue ones.",
                "{a} + {b}",
                "a:5-80 b:5-80",
                "{things}",
            ),
        ),
        (
            Template("{friend} gives {name} {a} more.", "{v} + {a}", "a:3-60"),
            Template("{name} loses {a} of them.", "{v} - {a}", "a:2-40"),
            Template("A year later {name} has {a} times as many.", "{v} * {a}", "a:2-5"),
            Template(
                "{name} gives {a} percent of them to {friend}.",
                "{v} * (100 - {a}) / 100",
                "a:5-75/5",
            ),
            Template(
                "Then {name} opens {a} packs with {b} more in each.",
                "{v} + {a} * {b}",
                "a:2-9 b:3-15",
            ),
        ),
        (
            Template("How many {things} does {name} have now?", "", ""),
            Template(
                "{name} shares all of them equally among {a} friends. How many {things} does each "
                "friend get?",
                "{v} / {a}",
                "a:2-9",
            ),
            Template(
                "{name} sells all of them for {a} cents each. How many dollars does {name} get?",
                "{v} * {a} / 100",
                "a:5-95/5",
                "dollars",
            ),
            Template(
                "{name} puts all of them into bags, {a} in each bag. How many bags are there?",
                "{v} / {a}",
                "a:2-12",
                "bags",
            ),
        ),
    ),
    "money": Kind(
        (
            Template("{name} has {a} dollars.", "", "a:60-400", "dollars"),
            Template(
                "{name} works {a} hours for {b} dollars an hour.",
                "{a} * {b}",
                "a:3-40 b:8-30",
                "dollars",
            ),
        ),
        (
            Template("{name} spends {a} dollars.", "{v} - {a}", "a:5-120"),
            Template("{friend} pays {name} {a} dollars.", "{v} + {a}", "a:5-120"),
            Template(
                "{name} buys {a} {things} for {b} dollars each.",
                "{v} - {a} * {b}",
                "a:2-12 b:2-9",
            ),
            Template(
                "{name} gives {a} percent of the money away.",
                "{v} * (100 - {a}) / 100",
                "a:5-75/5",
            ),
        ),
        (
            Template("How many dollars does {name} have then?", "", ""),
            Template(
                "{name} divides the money equally among {a} children. How many dollars does each "
                "child get?",
                "{v} / {a}",
                "a:2-8",
            ),
        ),
    ),
    "time": Kind(
        (
            Template("{name} practises for {a} minutes.", "", "a:12-90", "minutes"),
            Template(
                "{name} practises for {a} hours and {b} minutes.",
                "{a} * 60 + {b}",
                "a:2-6 b:5-55",
                "minutes",
            ),
            Template(
                "{name} practises {a} minutes a day for {b} days.",
                "{a} * {b}",
                "a:10-55 b:3-14",
                "minutes",
            ),
        ),
        (
            Template("{friend} practises {a} minutes longer than that.", "{v} + {a}", "a:5-90"),
            Template("{friend} practises {a} minutes less than that.", "{v} - {a}", "a:3-50"),
            Template("{friend} practises {a} times as long as that.", "{v} * {a}", "a:2-4"),
        ),
        (
            Template("How many minutes is that?", "", ""),
            Template("How many hours is that?", "{v} / 60", "", "hours"),
            Template(
                "That is {a} lessons of one length. How many minutes does a lesson take?",
                "{v} / {a}",
                "a:2-9",
            ),
        ),
    ),
    "distance": Kind(
        (
            Template("A bus is {a} km from home.", "", "a:20-95", "km"),
            Template(
                "A bus drives away from home for {a} hours at {b} km an hour.",
                "{a} * {b}",
                "a:2-8 b:35-95/5",
                "km",
            ),
        ),
        (
            Template("Then it drives {a} km further away.", "{v} + {a}", "a:4-90"),
            Template("Then it turns and drives {a} km back.", "{v} - {a}", "a:4-60"),
            Template(
                "Then it drives on until it is {a} times as far from home.", "{v} * {a}", "a:2-4"
            ),
        ),
        (
            Template("How many km is it from home?", "", ""),
            Template(
                "From there it drives home in {a} hours. How many km does it drive in an hour?",
                "{v} / {a}",
                "a:2-9",
            ),
            Template(
                "It needs {a} liters of fuel for 100 km. How many liters does the way home take?",
                "{v} * {a} / 100",
                "a:4-30",
                "liters",
            ),
        ),
    ),
}

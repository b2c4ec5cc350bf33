"""Kinds of questions about tables, each with the query that answers it.

A maker draws a table, rows and columns of it; it raises NothingToAsk where they have not what this
kind is about, and Refused where they make no good question.
What holds of all kinds, as that there is one answer, the method checks (`method.py`).
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite
from typing import Any, TypeVar

from turnwise_environments.tools.sql import DatabaseFile, literal, quoted
from turnwise_synthesis.items import Refused
from turnwise_synthesis.tables.schema import MOST_ROWS, Column, Link, Table

MOST_SHARE = 0.2
"""The largest share of the answers to be expected that may be the one."""
FEWEST = 3
"""The least number that is asked for by a count."""
LONGEST = 60
"""Characters of a value that stands in a question."""
TRIED = 6
"""Conditions of a row among which those are found that single it out."""

Choice = TypeVar("Choice")


class NothingToAsk(Exception):
    """A draw of tables and rows that a kind of questions has nothing to ask about."""


@dataclass(frozen=True)
class Condition:
    """A condition on a row: its words after "whose", and as SQL has it."""

    words: str
    sql: str


@dataclass(frozen=True)
class Question:
    """Example: Question("lookup", "In staff, what is ...?", "SELECT ...", "staff", column)."""

    kind: str
    text: str
    statement: str
    table: str = ""
    column: Column | None = None
    """The column, with its table, that has the answer, if one has."""


@dataclass(frozen=True)
class Scene:
    """A database and its tables."""

    database: DatabaseFile
    tables: Mapping[str, Table]

    def table(self, stream: random.Random) -> Table:
        found = list(self.tables.values())
        return stream.choices(found, [min(one.rows, MOST_ROWS) for one in found])[0]

    def row(self, stream: random.Random, table: Table) -> dict[Column, Any]:
        """A row's values that can stand in a question."""
        names = ", ".join(quoted(one.name) for one in table.columns)
        place = stream.randrange(table.rows)
        ((*values,),) = self.database.rows(
            f"SELECT {names} FROM {quoted(table.name)} LIMIT 1 OFFSET {place}"
        )
        pairs = zip(table.columns, values, strict=True)
        return {column: value for column, value in pairs if column.kind and is_plain(value)}

    def count(self, table: Table, condition: str) -> int:
        statement = f"SELECT count(*) FROM {quoted(table.name)} WHERE {condition}"
        ((found,),) = self.database.rows(statement)
        return int(found)


def is_plain(value: Any) -> bool:
    """Whether a value can stand in a question or be an answer: a number, or a short text that is
    seen as it is."""
    if isinstance(value, str):
        seen = value.isprintable() and "\ufffd" not in value and value == value.strip()
        return seen and 0 < len(value) <= LONGEST
    return isinstance(value, int) or (isinstance(value, float) and isfinite(value))


def chosen(stream: random.Random, found: Sequence[Choice]) -> Choice:
    if not found:
        raise NothingToAsk
    return stream.choice(found)


def equal(column: Column, value: Any) -> Condition:
    told = json.dumps(value, ensure_ascii=False)
    return Condition(f"{column.words} is {told}", f"{quoted(column.name)} = {literal(value)}")


def beyond(column: Column, above: bool, value: Any) -> Condition:
    words = f"{column.words} is {'above' if above else 'below'} {value}"
    return Condition(words, f"{quoted(column.name)} {'>' if above else '<'} {literal(value)}")


def linked(link: Link, there: Condition) -> Condition:
    inner = f"SELECT {quoted(link.target)} FROM {quoted(link.parent)} WHERE {there.sql}"
    words = f"{link.column.words} names a row of {link.parent} whose {there.words}"
    return Condition(words, f"{quoted(link.column.name)} IN ({inner})")


def all_of(conditions: Sequence[Condition]) -> Condition:
    """The conditions together, in one order, so that equal questions are equal."""
    ordered = sorted(conditions, key=lambda one: one.sql)
    words = ", and whose ".join(one.words for one in ordered)
    return Condition(words, " AND ".join(one.sql for one in ordered))


def select(column: Column, table: Table, where: Condition) -> str:
    return f"SELECT {quoted(column.name)} FROM {quoted(table.name)} WHERE {where.sql}"


def named(stream: random.Random, table: Table, row: Mapping[Column, Any]) -> Condition:
    """A key of the row."""
    keys = [key for key in table.keys if all(one in row for one in key)]
    return all_of([equal(one, row[one]) for one in chosen(stream, keys)])


def others(columns: Sequence[Column], where: Condition) -> list[Column]:
    """Columns that no condition has."""
    return [one for one in columns if quoted(one.name) not in where.sql]


def lookup(stream: random.Random, scene: Scene) -> Question:
    table = scene.table(stream)
    where = named(stream, table, scene.row(stream, table))
    column = chosen(stream, others(table.known, where))
    text = f"In {table.name}, what is the {column.words} of the row whose {where.words}?"
    return Question("lookup", text, select(column, table, where), table.name, column)


def count(stream: random.Random, scene: Scene) -> Question:
    """A count under one condition, or two."""
    table = scene.table(stream)
    row = scene.row(stream, table)
    column = chosen(stream, [one for one in table.groups if one in row])
    conditions = [equal(column, row[column])]
    measures = [one for one in others(table.measures, conditions[0]) if one in row]
    if measures and stream.random() < 0.5:
        measure = stream.choice(measures)
        conditions.append(beyond(measure, stream.random() < 0.5, row[measure]))
    else:
        _check_sizes(scene, table, column, row[column])
    return _counted("count", scene, table, all_of(conditions))


def joined_count(stream: random.Random, scene: Scene) -> Question:
    table = scene.table(stream)
    where = _linked(stream, scene, chosen(stream, table.links))
    return _counted("join count", scene, table, where)


def _counted(kind: str, scene: Scene, table: Table, where: Condition) -> Question:
    statement = f"SELECT count(*) FROM {quoted(table.name)} WHERE {where.sql}"
    if scene.count(table, where.sql) < FEWEST:
        raise Refused("guessable")
    return Question(
        kind, f"In {table.name}, how many rows are there whose {where.words}?", statement
    )


def _check_sizes(scene: Scene, table: Table, column: Column, value: Any) -> None:
    """Refuse a value that as many rows have as many another value."""
    size = scene.count(table, equal(column, value).sql)
    groups = f"SELECT count(*) AS n FROM {quoted(table.name)} GROUP BY {quoted(column.name)}"
    ((same,),) = scene.database.rows(f"SELECT sum(n = {size}) FROM ({groups})")
    if same > 1 and same > MOST_SHARE * column.distinct:
        raise Refused("guessable")


def _linked(stream: random.Random, scene: Scene, link: Link) -> Condition:
    """A condition on what a link names."""
    parent = scene.tables.get(link.parent)
    if parent is None:
        raise NothingToAsk
    row = scene.row(stream, parent)
    column = chosen(stream, [one for one in parent.groups if one in row])
    return linked(link, equal(column, row[column]))


def joined(stream: random.Random, scene: Scene) -> Question:
    table = scene.table(stream)
    link = chosen(stream, [one for one in table.links if one.parent in scene.tables])
    parent = scene.tables[link.parent]
    columns = [one for one in parent.known if one.name != link.target]
    where, column = named(stream, table, scene.row(stream, table)), chosen(stream, columns)
    text = (
        f"Take the row of {table.name} whose {where.words}. Its {link.column.words} names a row of "
        f"{parent.name}: what is the {column.words} there?"
    )
    statement = (
        f"SELECT b.{quoted(column.name)} FROM (SELECT * FROM {quoted(table.name)} "
        f"WHERE {where.sql}) AS a JOIN {quoted(parent.name)} AS b "
        f"ON a.{quoted(link.column.name)} = b.{quoted(link.target)}"
    )
    return Question("join", text, statement, parent.name, column)


def top(stream: random.Random, scene: Scene) -> Question:
    """The row with the largest or smallest number, of all or of some."""
    table = scene.table(stream)
    row = scene.row(stream, table)
    measure, highest = chosen(stream, table.measures), stream.random() < 0.5
    groups = [one for one in table.groups if one in row and one != measure]
    group = chosen(stream, [None, *groups, *groups])
    of = "" if group is None else equal(group, row[group]).sql
    words = "" if group is None else f" of those whose {equal(group, row[group]).words}"
    column = chosen(stream, [one for one in table.known if one not in (measure, group)])
    extreme = f"{'max' if highest else 'min'}({quoted(measure.name)})"
    inner = f"SELECT {extreme} FROM {quoted(table.name)}" + (f" WHERE {of}" if of else "")
    where = f"{f'{of} AND ' if of else ''}{quoted(measure.name)} = ({inner})"
    text = (
        f"In {table.name}, which row has the {'highest' if highest else 'lowest'} {measure.words}"
        f"{words}? Give its {column.words}."
    )
    statement = select(column, table, Condition("", where))
    return Question("top", text, statement, table.name, column)


def difference(stream: random.Random, scene: Scene) -> Question:
    table = scene.table(stream)
    columns = chosen(stream, table.keys)
    rows = [scene.row(stream, table) for _ in range(2)]
    if not all(one in row for row in rows for one in columns):
        raise Refused("no value")
    first, second = sorted(
        (all_of([equal(one, row[one]) for one in columns]) for row in rows), key=lambda one: one.sql
    )
    measure = chosen(stream, others(table.measures, first))
    one, other = (f"({select(measure, table, where)})" for where in (first, second))
    text = (
        f"In {table.name}, by how much do the {measure.words} of the row whose {first.words} and "
        f"that of the row whose {second.words} differ?"
    )
    return Question("difference", text, f"SELECT abs({one} - {other})")


def two_conditions(stream: random.Random, scene: Scene) -> Question:
    """The one row of a group that is beyond the next one."""
    table = scene.table(stream)
    row = scene.row(stream, table)
    group = chosen(stream, [one for one in table.groups if one in row])
    measure = chosen(stream, [one for one in table.measures if one != group])
    of, above = equal(group, row[group]), stream.random() < 0.5
    order = f"ORDER BY {quoted(measure.name)} {'DESC' if above else 'ASC'} LIMIT 2"
    there = Condition("", f"{of.sql} AND {quoted(measure.name)} IS NOT NULL {order}")
    values = [value for (value,) in scene.database.rows(select(measure, table, there))]
    if len(values) < 2 or not all(map(is_plain, values)):
        raise Refused("no value")
    conditions = (of, beyond(measure, above, values[1]))
    return _singled("two conditions", stream, table, _fewest(stream, scene, table, conditions))


def reverse(stream: random.Random, scene: Scene) -> Question:
    """The question that begins with a row, and finds conditions that single it out."""
    table = scene.table(stream)
    row = scene.row(stream, table)
    own = [equal(one, row[one]) for one in table.groups if one in row]
    limits = [
        beyond(one, above, row[one] + (-1 if above else 1))
        for one in table.measures
        if one in row and one not in table.groups
        for above in (True, False)
    ]
    found = [*own, *limits, *_of_links(stream, scene, table, row)]
    tried = stream.sample(found, min(TRIED, len(found)))
    return _singled("reverse", stream, table, _fewest(stream, scene, table, tried))


def _of_links(
    stream: random.Random, scene: Scene, table: Table, row: Mapping[Column, Any]
) -> Iterator[Condition]:
    """For each link of a row a condition on what it names."""
    for link in table.links:
        parent = scene.tables.get(link.parent)
        if parent is None or link.column not in row or not parent.groups:
            continue
        column = stream.choice(parent.groups)
        target = f"{quoted(link.target)} = {literal(row[link.column])}"
        found = scene.database.rows(select(column, parent, Condition("", target)))
        if len(found) == 1 and is_plain(found[0][0]):
            yield linked(link, equal(column, found[0][0]))


def _fewest(
    stream: random.Random, scene: Scene, table: Table, conditions: Sequence[Condition]
) -> Condition:
    """A least set of two conditions or more that one row meets: none of them can go."""
    if len(conditions) < 2:
        raise NothingToAsk
    met = ", ".join(f"ifnull({one.sql}, 0)" for one in conditions)
    places = ", ".join(str(place + 1) for place in range(len(conditions)))
    patterns = scene.database.rows(
        f"SELECT {met}, count(*) FROM {quoted(table.name)} GROUP BY {places}"
    )
    least: list[frozenset[int]] = []
    for size in range(1, len(conditions) + 1):
        for chosen_ones in map(frozenset, combinations(range(len(conditions)), size)):
            rows = sum(row[-1] for row in patterns if all(row[one] for one in chosen_ones))
            if rows == 1 and not any(one < chosen_ones for one in least):
                least.append(chosen_ones)
    several = [sorted(one) for one in least if len(one) > 1]
    if not several:
        raise Refused("redundant" if least else "not unique")
    return all_of([conditions[one] for one in stream.choice(several)])


def _singled(kind: str, stream: random.Random, table: Table, where: Condition) -> Question:
    column = chosen(stream, others(table.known, where))
    text = f"In {table.name}, find the one row whose {where.words}. What is its {column.words}?"
    return Question(kind, text, select(column, table, where), table.name, column)


KINDS: tuple[Callable[[random.Random, Scene], Question], ...] = (
    *(lookup, count, joined, joined_count, top, difference, two_conditions, reverse),
)

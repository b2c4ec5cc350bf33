"""Requests about tables, made by program: words, the statement that answers, and its kind.

A maker looks at the rows and draws a request that can be done. The small grammar has one table,
numbers for names, and short statements in lower case; the full one has a second table, and
conditions, orders, groups and joins.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from turnwise_environments.common import words_in
from turnwise_environments.tools.sql import Table, literal

KEYS = words_in(
    "ada ben cleo dana eli finn gus hana ivo jade kit lena max nora otto pia quinn rosa sam "
    "tess udo vera walt xena yuri zoe amos bea carl dora emil fay greta hugo iris joel"
)
GROUPS = words_in(
    "red blue green gold gray pink black white north south east west upper lower inner outer"
)
NUMBERS = range(10, 100)
"""All that the cells of the small grammar have: a small model writes digits sooner than names."""


@dataclass(frozen=True)
class Theme:
    """A table's names. Example: Theme("staff", "name", "team", "age", "pay", "boss", "size")."""

    table: str
    key: str
    group: str
    number: str
    second: str
    """Another number, in the full grammar only."""
    owner: str
    """Column of the second table, which is named after the group: a word, and a number."""
    size: str


THEMES = (
    Theme("staff", "name", "team", "age", "pay", "boss", "budget"),
    Theme("pets", "pet", "house", "weight", "meals", "keeper", "rooms"),
    Theme("cars", "car", "garage", "speed", "miles", "mechanic", "places"),
    Theme("boats", "boat", "harbor", "length", "seats", "master", "depth"),
    Theme("plays", "play", "stage", "score", "actors", "director", "rows"),
    Theme("plants", "plant", "bed", "height", "leaves", "gardener", "meters"),
    Theme("games", "game", "shelf", "price", "players", "seller", "level"),
    Theme("songs", "song", "album", "minutes", "votes", "singer", "year"),
)
OWNERS = ("mr stone", "ms hill", "mr wood", "ms lake", "mr field", "ms brook")


@dataclass(frozen=True)
class Request:
    """Example: Request("lookup", "What is the age of ada?", "SELECT age FROM ...")."""

    kind: str
    text: str
    statement: str
    changes: bool = False
    """Whether it is done by changing the tables; otherwise the result is the answer."""


@dataclass(frozen=True)
class Scene:
    """A theme and its tables, the second one empty in the small grammar."""

    theme: Theme
    rows: tuple[tuple[Any, ...], ...]
    """(key, group, number), and the second number in the full grammar."""
    groups: tuple[tuple[Any, ...], ...] = ()
    """(group, owner, size)."""

    def tables(self) -> list[Table]:
        theme, text, number = self.theme, "TEXT", "INTEGER"
        if not self.groups:
            names = (theme.key, theme.group, theme.number)
            return [Table(theme.table, tuple((name, number) for name in names), self.rows)]
        columns = [(theme.key, text), (theme.group, text), (theme.number, number)]
        named = ((theme.group, text), (theme.owner, text), (theme.size, number))
        return [
            Table(theme.table, (*columns, (theme.second, number)), self.rows),
            Table(f"{theme.group}s", named, self.groups),
        ]

    def free_keys(self) -> list[Any]:
        used = {row[0] for row in self.rows}
        return [key for key in (KEYS if self.groups else NUMBERS) if key not in used]

    def used_groups(self) -> list[Any]:
        return sorted({row[1] for row in self.rows})


def small_scene(stream: random.Random) -> Scene:
    groups = stream.sample(NUMBERS, 3)
    keys = stream.sample(NUMBERS, stream.randint(5, 7))
    numbers = stream.sample(NUMBERS, len(keys))
    rows = zip(keys, (stream.choice(groups) for _ in keys), numbers, strict=True)
    return Scene(stream.choice(THEMES), tuple(rows))


def full_scene(stream: random.Random) -> Scene:
    groups = stream.sample(GROUPS, stream.randint(4, 6))
    keys = stream.sample(KEYS, stream.randint(12, 18))
    numbers = [stream.sample(range(10, 400), len(keys)) for _ in range(2)]
    rows = zip(keys, (stream.choice(groups) for _ in keys), *numbers, strict=True)
    owners = [(one, stream.choice(OWNERS), stream.randint(2, 90)) for one in groups]
    return Scene(stream.choice(THEMES), tuple(rows), tuple(owners))


def lookup(stream: random.Random, scene: Scene) -> Request:
    theme, row = scene.theme, stream.choice(scene.rows)
    column = stream.choice((theme.group, theme.number))
    where = f"{theme.key} = {literal(row[0])}"
    text = f"What is the {column} of {theme.key} {row[0]}?"
    return Request("lookup", text, f"select {column} from {theme.table} where {where}")


def count(stream: random.Random, scene: Scene) -> Request:
    theme, group = scene.theme, stream.choice(scene.used_groups())
    text = f"How many {theme.table} have the {theme.group} {group}?"
    where = f"{theme.group} = {literal(group)}"
    return Request("count", text, f"select count(*) from {theme.table} where {where}")


def extreme(stream: random.Random, scene: Scene) -> Request:
    theme, group = scene.theme, stream.choice(scene.used_groups())
    word, function = stream.choice((("highest", "max"), ("lowest", "min")))
    text = f"What is the {word} {theme.number} with the {theme.group} {group}?"
    where = f"{theme.group} = {literal(group)}"
    statement = f"select {function}({theme.number}) from {theme.table} where {where}"
    return Request("extreme", text, statement)


def update(stream: random.Random, scene: Scene) -> Request:
    theme, row = scene.theme, stream.choice(scene.rows)
    number = stream.choice([one for one in range(10, 100) if one != row[2]])
    text = f"Set the {theme.number} of {theme.key} {row[0]} to {number}."
    change = f"set {theme.number} = {number} where {theme.key} = {literal(row[0])}"
    return Request("update", text, f"update {theme.table} {change}", changes=True)


def insert(stream: random.Random, scene: Scene) -> Request:
    theme, key = scene.theme, stream.choice(scene.free_keys())
    values = [key, stream.choice(scene.used_groups()), stream.randint(10, 99)]
    names = [theme.key, theme.group, theme.number]
    if scene.groups:
        values, names = [*values, stream.randint(10, 99)], [*names, theme.second]
    told = ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=True))
    listed = ", ".join(map(literal, values))
    return Request(
        "insert",
        f"Add to {theme.table}: {told}.",
        f"insert into {theme.table} values ({listed})",
        changes=True,
    )


def delete(stream: random.Random, scene: Scene) -> Request:
    theme, row = scene.theme, stream.choice(scene.rows)
    statement = f"delete from {theme.table} where {theme.key} = {literal(row[0])}"
    text = f"Remove {theme.key} {row[0]} from {theme.table}."
    return Request("delete", text, statement, changes=True)


def two_conditions(stream: random.Random, scene: Scene) -> Request:
    theme, row = scene.theme, stream.choice(scene.rows)
    limit = row[2] - stream.randint(1, 9)
    text = (
        f"Which {theme.table} have the {theme.group} {row[1]} and a {theme.number} over {limit}? "
        f"Give each {theme.key}."
    )
    where = f"{theme.group} = {literal(row[1])} AND {theme.number} > {limit}"
    return Request("conditions", text, f"SELECT {theme.key} FROM {theme.table} WHERE {where}")


def total(stream: random.Random, scene: Scene) -> Request:
    theme, group = scene.theme, stream.choice(scene.used_groups())
    text = f"What is the total {theme.second} of all {theme.table} with the {theme.group} {group}?"
    where = f"{theme.group} = {literal(group)}"
    return Request("total", text, f"SELECT sum({theme.second}) FROM {theme.table} WHERE {where}")


def top(stream: random.Random, scene: Scene) -> Request:
    """Numbers differ, so there is one."""
    theme = scene.theme
    word, order = stream.choice((("highest", "DESC"), ("lowest", "ASC")))
    limit = stream.choice(scene.rows)[2] - 1
    text = (
        f"Of all {theme.table} with a {theme.number} over {limit}, which {theme.key} has the "
        f"{word} {theme.second}?"
    )
    statement = (
        f"SELECT {theme.key} FROM {theme.table} WHERE {theme.number} > {limit} "
        f"ORDER BY {theme.second} {order} LIMIT 1"
    )
    return Request("top", text, statement)


def joined(stream: random.Random, scene: Scene) -> Request:
    theme, row = scene.theme, stream.choice(scene.rows)
    column = stream.choice((theme.owner, theme.size))
    text = f"What is the {column} of the {theme.group} of {row[0]}?"
    statement = (
        f"SELECT {column} FROM {theme.group}s JOIN {theme.table} USING ({theme.group}) "
        f"WHERE {theme.key} = {literal(row[0])}"
    )
    return Request("join", text, statement)


def joined_count(stream: random.Random, scene: Scene) -> Request:
    theme, owner = scene.theme, stream.choice(scene.groups)[1]
    limit = stream.choice(scene.rows)[2] - 1
    text = (
        f"How many {theme.table} with a {theme.number} over {limit} have a {theme.group} whose "
        f"{theme.owner} is {owner}?"
    )
    statement = (
        f"SELECT count(*) FROM {theme.table} JOIN {theme.group}s USING ({theme.group}) "
        f"WHERE {theme.owner} = {literal(owner)} AND {theme.number} > {limit}"
    )
    return Request("join count", text, statement)


def raised(stream: random.Random, scene: Scene) -> Request:
    theme, group, more = scene.theme, stream.choice(scene.used_groups()), stream.randint(2, 60)
    text = (
        f"Raise the {theme.second} of all {theme.table} with the {theme.group} {group} by {more}."
    )
    statement = (
        f"UPDATE {theme.table} SET {theme.second} = {theme.second} + {more} "
        f"WHERE {theme.group} = {literal(group)}"
    )
    return Request("raise", text, statement, changes=True)


def cleared(stream: random.Random, scene: Scene) -> Request:
    theme, limit = scene.theme, stream.choice(scene.rows)[2] + 1
    text = f"Remove all {theme.table} with a {theme.number} under {limit}."
    statement = f"DELETE FROM {theme.table} WHERE {theme.number} < {limit}"
    return Request("clear", text, statement, changes=True)


def owned(stream: random.Random, scene: Scene) -> Request:
    theme, owner, number = scene.theme, stream.choice(scene.groups)[1], stream.randint(400, 500)
    text = (
        f"Set the {theme.number} to {number} for all {theme.table} in a {theme.group} whose "
        f"{theme.owner} is {owner}."
    )
    statement = (
        f"UPDATE {theme.table} SET {theme.number} = {number} WHERE {theme.group} IN "
        f"(SELECT {theme.group} FROM {theme.group}s WHERE {theme.owner} = {literal(owner)})"
    )
    return Request("join update", text, statement, changes=True)


Maker = Callable[[random.Random, Scene], Request]
SMALL: tuple[Maker, ...] = (lookup, count, extreme, update, insert, delete)
FULL: tuple[Maker, ...] = (
    *(two_conditions, total, top, joined, joined_count),
    *(insert, raised, cleared, owned),
)
GRAMMARS: Mapping[str, tuple[Callable[[random.Random], Scene], tuple[Maker, ...]]] = {
    "small": (small_scene, SMALL),
    "full": (full_scene, FULL),
}

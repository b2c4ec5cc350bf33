"""How near an episode's queries come to what is asked for, turn by turn.

A result counts by the share of wanted cells among those that are wanted or shown, less the share
that a look at a whole table or column has. What is known to the agent is one set of rows; the share
that counts is the lowest over this one and variants of it, on which the statements are run too: a
guess that is typed in as a constant is right in one of them alone. Comparing on several databases
is test-suite accuracy (Zhong, Yu and Klein 2020, arXiv 2010.02840). Not here: changes of the tables
(`turnwise_environments/progress.py`), whether the answer is right (`environment.py`).
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from turnwise.environments.turn_parts import results_of
from turnwise.errors import ToolError
from turnwise.seeds import derive
from turnwise.types import Trajectory
from turnwise_environments.progress import changes_of
from turnwise_environments.sql.tasks import outcome
from turnwise_environments.tools.sql import MAX_ROWS, Database, Table, shown

VARIANTS = 2
"""Variants of the tables on which statements are run besides."""
DRAWS = 30
"""Variants that are drawn for them, at most."""


@dataclass(frozen=True)
class Wanted:
    """The result that is asked for on some rows, and the share that is to be had without asking."""

    cells: Sequence[str]
    floor: float
    """Share of a look at a whole table or column, 0 to 1."""

    def share(self, result: str, least: float) -> float:
        """The share of a result's text, 0 to 1; 0 where it is sure not to be above `least`."""
        found = [cell for line in result.split("\n")[1:] for cell in line.split(" | ")]
        if min(len(found), len(self.cells)) <= least * max(len(found), len(self.cells)):
            return 0.0
        share = _in_common(found, self.cells)
        return max(0.0, share - self.floor) / (1 - self.floor) if self.floor < 1 else share


def progress(trajectory: Trajectory) -> list[float]:
    """For each turn the gain in the best share that a query of the episode has come to."""
    task, best = trajectory.task, 0.0
    tables = [Table.of(plain) for plain in task.data["tables"]]
    wanted = _wanted(tables, task.secret["answer"])
    variants = [
        (Database(variant), _wanted(variant, cells))
        for variant, cells in _variants(tables, task.secret["statement"], task.id)
    ]
    shares = []
    for turn in trajectory.turns:
        for result in results_of(turn, "sql"):
            share = wanted.share(result.content, best)
            for database, there in variants:
                again = _result(database, result.call.arguments["statement"])
                share = min(share, there.share(again, best)) if share else 0.0
            best = max(best, share)
        shares.append(best)
    for database, _ in variants:
        database.close()
    return changes_of(shares)


def _wanted(tables: Sequence[Table], cells: Sequence[str]) -> Wanted:
    floor = 0.0
    for table in tables:
        rows = [[shown(value) for value in row] for row in table.rows[:MAX_ROWS]]
        looks = [[cell for row in rows for cell in row], *map(list, zip(*rows, strict=True))]
        floor = max(floor, *(_in_common(look, cells) for look in looks))
    return Wanted(cells, floor)


def _in_common(found: Sequence[str], cells: Sequence[str]) -> float:
    """Cells that are in both, as a share of all that are in one of them (Jaccard), 0 to 1. A
    database shows equal values in one way, so texts are compared."""
    common = (Counter(found) & Counter(cells)).total()
    return common / max(len(found) + len(cells) - common, 1)


def _result(database: Database, statement: str) -> str:
    try:
        return database.run(statement)
    except ToolError:
        return ""


def _variants(
    tables: Sequence[Table], statement: str, seed: str
) -> Iterator[tuple[list[Table], list[str]]]:
    """Variants of the tables on which the statement has a result of its own, and that result."""
    known = [outcome(tables, statement)[0]]
    for number in range(DRAWS):
        stream = random.Random(derive("sql variant", seed, number))
        variant = [_variant(table, stream) for table in tables]
        cells = outcome(variant, statement)[0]
        if cells and cells not in known and shown(None) not in cells:
            known.append(cells)
            yield variant, cells
        if len(known) > VARIANTS:
            return


def _variant(table: Table, stream: random.Random) -> Table:
    """The table with the first column, its key, as it is: other columns are shuffled, or drawn
    again where they have a value twice."""
    keys, *columns = (list(column) for column in zip(*table.rows, strict=True))
    drawn: list[list[Any]] = [
        stream.sample(values, len(values))
        if len(set(values)) == len(values)
        else stream.choices(values, k=len(values))
        for values in columns
    ]
    return replace(table, rows=tuple(zip(keys, *drawn, strict=True)))

"""The SQL environment: answer a question about tables, or change them, with SQL.

The tables are in SQLite, in memory: one database for each episode. What counts is the answer where
one is asked for, and the state that is left: a question must leave the tables as they are, a change
must make the wanted rows and no others, on whatever way.

A result is progress by the share of wanted cells among those that are wanted or shown, less the
share that a look at a whole table or column has. What is known to the agent is one set of rows; the
share that counts is the lowest over this one and variants of it, on which the statements are run
too: a guess that is typed in as a constant is right in one of them alone. Comparing on several
databases is test-suite accuracy (Zhong, Yu and Klein 2020, arXiv 2010.02840).
"""

import base64
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.turn_parts import results_of, share
from turnwise.errors import ToolError
from turnwise.seeds import derive
from turnwise.tokens import Source
from turnwise.tools.tool import tool
from turnwise.types import Action, Observation, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.progress import (
    STATE_PARTS,
    changes_of,
    progress_part,
    replayed,
    share_of_changes,
    state_parts,
)
from turnwise_environments.rewards.cells import cells_match, share_of_cells
from turnwise_environments.sql.questions import QuestionFile, told_tables
from turnwise_environments.sql.requests import GRAMMARS
from turnwise_environments.sql.tasks import STANDARD, MadeRequests, RecordFile, outcome, scene_of
from turnwise_environments.tools.sql import MAX_ROWS, Database, DatabaseFile, Table, shown

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
    """Cells that are in both, as a share of all that are in one of them (Jaccard). A database shows
    equal values in one way, so texts are compared."""
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
    """The table with its key as it is: other columns are shuffled, or drawn again where they have a
    value twice."""
    # The key stays, so that a statement which names one finds its row.
    keys, *columns = (list(column) for column in zip(*table.rows, strict=True))
    drawn: list[list[Any]] = [
        stream.sample(values, len(values))
        if len(set(values)) == len(values)
        else stream.choices(values, k=len(values))
        for values in columns
    ]
    return replace(table, rows=tuple(zip(keys, *drawn, strict=True)))


PARTS = {
    "state": share("whether the tables are as wanted"),
    "answer": share("whether the answer is right; after a change, whether there is one"),
    "rows": share("right cells of the answer, or rows changed as wanted, among right and wrong"),
}
TURN_PARTS = {
    "progress": progress_part(
        "change of the share of right cells in the best result so far, or of rows changed as "
        "wanted; of made requests"
    ),
    "harm": STATE_PARTS["harm"],
}


def counted_rows(state: Mapping[str, Any]) -> Counter[tuple[str, str]]:
    return Counter(
        (name, json.dumps(row, default=str))
        for name, table in state.items()
        for row in (table["rows"] if isinstance(table, Mapping) else [table])
    )


class SqlEnvironment(Environment):
    """One tool, `sql`. Example: `SqlEnvironment(tasks=RecordFile("dbbench/standard.jsonl"))`."""

    _database: Database
    """The state of one episode, all of it."""

    facts = EnvironmentSpec("sql", "1", parts=PARTS | TURN_PARTS)

    def __init__(self, tasks: MadeRequests | RecordFile | QuestionFile = STANDARD) -> None:
        """Raises DataError for a file that is broken."""
        self.task_set = tasks.load()
        self._file = tasks.database_path if isinstance(tasks, QuestionFile) else None
        self._told = f"{told_tables(self._file)} " if self._file else ""
        self._measures_turns = isinstance(tasks, MadeRequests)
        if not self._measures_turns:  # of records' questions no statement is known
            self.facts = EnvironmentSpec("sql", "1", parts=PARTS)

    async def reset(self, task: Task, seed: int) -> Observation:
        del seed
        await self.close()
        self._database = (
            DatabaseFile(self._file)
            if self._file
            else Database([Table.of(plain) for plain in task.data["tables"]])
        )
        return Observation(self._told + task.prompt, Source.USER)

    @tool
    async def sql(self, statement: str) -> str:
        """Run one SQL statement (SQLite) on the tables."""
        return self._database.run(statement)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 when the tables are what the request makes of them and no more, the episode was ended
        by an answer, and that is the right one where one is asked for."""
        secret, answer = trajectory.task.secret, trajectory.answer
        left = self._database.state()
        kept = left == secret["state"]
        if secret["answer"] is None:
            # A change that leaves all as it is (there are such) still has to be made.
            told = answer is not None and self._database.written > 0
            before = Database([Table.of(plain) for plain in trajectory.task.data["tables"]])
            rows = share_of_changes(*map(counted_rows, (before.state(), secret["state"], left)))
            before.close()
        else:
            told = cells_match(answer, secret["answer"])
            rows = share_of_cells(answer, secret["answer"])
        success = kept and told
        parts = {"state": float(kept), "answer": float(told), "rows": rows}
        turns = await self._turn_parts(trajectory) if self._measures_turns else {}
        return Verdict(float(success), success, parts, f"answered {answer!r}", turns)

    async def _turn_parts(self, trajectory: Trajectory) -> dict[str, list[float]]:
        task, twin = trajectory.task, self.fresh()
        twin._database = Database([Table.of(plain) for plain in task.data["tables"]])
        before = counted_rows(twin._database.state())
        after = await replayed(twin, trajectory, lambda: counted_rows(twin._database.state()))
        await twin.close()
        parts = state_parts(before, counted_rows(task.secret["state"]), after)
        if task.secret["answer"] is not None:
            parts["progress"] = progress(trajectory)
        return parts

    def oracle(self, task: Task) -> Sequence[Action]:
        """The statement, where one is known, then the answer; without a thought in the small
        grammar."""
        cells = task.secret["answer"]
        if cells is None:
            answer = "done"
        else:
            answer = cells[0] if len(cells) == 1 else json.dumps(cells, ensure_ascii=False)
        small = task.info.get("grammar") == "small"
        last = Action("", "" if small else "done", answer=answer)
        if task.secret["statement"] is None:
            return [last]
        call = ToolCall("sql", {"statement": task.secret["statement"]})
        return [Action("", "" if small else "ask", (call,)), last]

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        """A statement of the grammar about what the tables have, and a number below 10."""
        if "grammar" not in task.info:
            return super().random_actions(task, stream)
        scene, makers = scene_of(task), GRAMMARS[task.info["grammar"]][1]
        call = ToolCall("sql", {"statement": stream.choice(makers)(stream, scene).statement})
        return [Action("", calls=(call,)), Action("", answer=str(stream.randrange(10)))]

    def snapshot(self) -> bytes:
        dump = base64.b64encode(self._database.dump()).decode()
        return json.dumps({"written": self._database.written, "dump": dump}).encode()

    def restore(self, state: bytes) -> None:
        found = json.loads(state)
        if hasattr(self, "_database"):
            self._database.close()
        if self._file:
            self._database = DatabaseFile(self._file)
        else:
            self._database = Database.restored(base64.b64decode(found["dump"]), found["written"])

    async def close(self) -> None:
        if hasattr(self, "_database"):
            self._database.close()

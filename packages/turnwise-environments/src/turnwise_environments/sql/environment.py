"""The SQL environment: answer a question about tables, or change them, with SQL.

The tables are in SQLite, in memory: one database for each episode. What counts is the answer where
one is asked for, and the state that is left: a question must leave the tables as they are, a change
must make the wanted rows and no others, on whatever way. Not here: requests (`requests.py`),
AgentBench's (`dbbench.py`).
"""

import base64
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.turn_parts import share
from turnwise.tokens import Source
from turnwise.tools.tool import tool
from turnwise.types import Action, Observation, Task, ToolCall, Trajectory, Verdict
from turnwise_environments.progress import (
    STATE_PARTS,
    progress_part,
    replayed,
    share_of_changes,
    state_parts,
)
from turnwise_environments.rewards.cells import cells_match, share_of_cells
from turnwise_environments.sql.dbbench import RecordFile
from turnwise_environments.sql.progress import progress
from turnwise_environments.sql.requests import GRAMMARS
from turnwise_environments.sql.tasks import STANDARD, MadeRequests, scene_of
from turnwise_environments.tools.sql import Database, Table

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
    """The rows of a state of the tables, each as often as it is there."""
    return Counter(
        (name, json.dumps(row, default=str))
        for name, table in state.items()
        for row in (table["rows"] if isinstance(table, Mapping) else [table])
    )


class SqlEnvironment(Environment):
    """One tool, `sql`.

    Example:
        SqlEnvironment(tasks=RecordFile("dbbench/standard.jsonl"))
    """

    _database: Database
    """The state of one episode, all of it."""

    facts = EnvironmentSpec("sql", "1", parts=PARTS | TURN_PARTS)

    def __init__(self, tasks: MadeRequests | RecordFile = STANDARD) -> None:
        """Raises DataError for a file that is broken."""
        self.task_set = tasks.load()
        self._measures_turns = isinstance(tasks, MadeRequests)
        if not self._measures_turns:  # of records' questions no statement is known
            self.facts = EnvironmentSpec("sql", "1", parts=PARTS)

    async def reset(self, task: Task, seed: int) -> Observation:
        """A database of the task's tables, whose names and columns the prompt has."""
        del seed
        await self.close()
        tables = [Table.of(plain) for plain in task.data["tables"]]
        self._database = Database(tables)
        return Observation(task.prompt, Source.USER)

    @tool
    async def sql(self, statement: str) -> str:
        """Run one SQL statement (SQLite) on the tables."""
        return self._database.run(statement)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 when the tables are what the request makes of them and no more, the episode was ended
        by an answer, and that is the right one where one is asked for; else 0."""
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
        """The statement, where one is known, then the answer; in the small grammar without a
        thought."""
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
        """A statement of the grammar about what the tables have, and a number below 10; for
        records, what any environment has."""
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
        self._database = Database.restored(base64.b64decode(found["dump"]), found["written"])

    async def close(self) -> None:
        """Release the database."""
        if hasattr(self, "_database"):
            self._database.close()

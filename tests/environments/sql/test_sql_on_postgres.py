"""The SQL environment on a real Postgres server: the verdicts of SQLite, and failures."""

import asyncio
import contextlib
import gc
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.tools.postgres_server import Running, running_server
from turnwise.environments.registry import make_environment
from turnwise.environments.sql.environment import SqlEnvironment
from turnwise.environments.sql.tasks import MadeRequests
from turnwise.errors import ConfigError, InfrastructureError, MissingExtraError
from turnwise.evaluation.measurement import (
    NOTHING,
    is_concurrent,
    is_restorable,
    played_all,
    random_script,
    success,
)
from turnwise.tools.postgres_connection import Connection, address
from turnwise.types import Action, ToolCall

COUNT = 24
FEW = 6
"""An episode takes a tenth of a second: its database is made and dropped."""
DIALECTS = ("SQLite", "Postgres")


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with running_server() as running:
        yield running


@pytest.fixture(scope="module", params=[pytest.param("small", marks=pytest.mark.slow), "full"])
def both(running: Running, request: pytest.FixtureRequest) -> list[SqlEnvironment]:
    """The environment in SQLite, and on the server."""
    options: dict[str, Any] = {"tasks": {"count": COUNT, "grammar": request.param}}
    found = []
    for more in ({}, {"postgres": running.url()}):
        environment = make_environment("sql", {**options, **more})
        assert isinstance(environment, SqlEnvironment)
        found.append(environment)
    return found


@pytest.mark.slow
def test_verdicts_are_those_of_sqlite(both: list[SqlEnvironment]) -> None:
    sqlite, postgres = both
    reported = sqlite.spec.parts
    assert replace(postgres.spec, parts=reported) == sqlite.spec
    assert reported.keys() - postgres.spec.parts.keys() == {"progress", "harm"}
    tasks = postgres.tasks("heldout")
    assert success(played_all(postgres, tasks, [postgres.oracle(one) for one in tasks])) == 1.0
    few = tasks[:FEW]
    harm = [
        [*sqlite.oracle(one)[:-1], call(f"DELETE FROM {one.data['tables'][0]['name']}")]
        for one in few
    ]
    random_ones = [random_script(sqlite, one) for one in few]
    for scripts in (random_ones, harm, [[NOTHING]] * FEW):
        verdicts = [
            [
                replace(verdict, turn_parts={})
                for play in played_all(environment, few, scripts)
                if (verdict := play.trajectory.verdict)
            ]
            for environment in both
        ]
        assert verdicts[0] == verdicts[1]


def call(statement: str) -> Action:
    return Action("", calls=(ToolCall("sql", {"statement": statement}),))


@pytest.mark.slow
def test_snapshots_and_many_at_once(both: list[SqlEnvironment]) -> None:
    tasks = both[1].tasks("train")
    assert asyncio.run(is_restorable(both[1], tasks[:2]))
    assert asyncio.run(is_concurrent(both[1], tasks[:16]))


@pytest.mark.long
def test_restoring_waits_for_nothing_and_leaves_nothing(
    running: Running, both: list[SqlEnvironment]
) -> None:
    task, episode = both[1].tasks("train")[0], both[1].fresh()
    connection = Connection(address(running.url()), {})

    def databases() -> Any:
        return connection.ask("SELECT datname FROM pg_database ORDER BY 1").rows

    async def play() -> None:
        before = databases()
        await episode.reset(task.public(), 0)
        await episode.step(call("SELECT 1"))
        made = databases()
        episode.restore(episode.snapshot())
        episode.restore(episode.snapshot())
        assert databases() == made
        await episode.step(call("SELECT 1"))
        assert len(databases()) == len(made)
        assert databases() != made
        episode.restore(episode.snapshot())
        await episode.close()
        assert databases() == before

    with contextlib.closing(connection):
        asyncio.run(play())


def test_the_tool_names_the_dialect(both: list[SqlEnvironment]) -> None:
    dialects = [tool.schema["description"] for one in both for tool in one.tools()]
    assert dialects == [f"Run one SQL statement ({one}) on the tables." for one in DIALECTS]
    assert [tool.description for one in both for tool in one.tools()] == dialects


@pytest.mark.long
def test_a_server_that_is_gone_is_infrastructure() -> None:
    with running_server() as running:
        environment = SqlEnvironment(MadeRequests(1), postgres=running.url())

        async def play() -> None:
            episode = environment.fresh()
            task = environment.tasks("train")[0]
            await episode.reset(task.public(), 0)
            assert (await episode.step(call("SELECT 1"))).results[0].ok
            running.process.kill()
            running.process.wait()
            with pytest.raises(InfrastructureError, match="postgres at"):
                await episode.step(call("SELECT 1"))
            await episode.close()

        asyncio.run(play())


def test_records_are_for_sqlite() -> None:
    with pytest.raises(ConfigError, match="sql: records are in MySQL's dialect"):
        make_environment(
            "sql", {"postgres": "postgresql://localhost/a", "tasks": {"file": "a.json"}}
        )


@pytest.mark.long
def test_the_error_for_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # environments of other tests drop their schemas now, with psycopg
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"turnwise\[postgres\]"):
        SqlEnvironment(MadeRequests(1), postgres="postgresql://localhost/a")

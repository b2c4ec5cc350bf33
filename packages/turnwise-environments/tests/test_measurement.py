"""Measuring environments: what a sound one gets, each kind of defect, and the audits."""

import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from environment_playing import module
from turnwise.config import check_recipe
from turnwise.environments.random_actions import random_script, random_value
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError, DataError
from turnwise.storage.audits import audits, read_audit
from turnwise.storage.run_folder import RunFolder
from turnwise.types import Task
from turnwise_environments.choosing import COMPARED, spread
from turnwise_environments.commands import (
    environments_table,
    named_with_options,
    rewards,
    write_measurements,
)
from turnwise_environments.measurement import Measurement, measure, measure_all
from turnwise_environments.serve import offer_of

OWN = '''
import asyncio, json, os, sys
from turnwise.environments.base import Environment
from turnwise.tools.tool import tool
from turnwise.types import Action, Task, ToolCall, Verdict

class Counter(Environment):
    """Add up to a number."""
    shared = {"total": 0}
    def tasks(self, split):
        first = 0 if split == "train" else 20
        return [Task(f"t{n}", f"Count to {n % 7 + 1}.", {"n": n % 7 + 1}) for n in
                range(first, first + 20)]
    async def reset(self, task, seed):
        self.total = 0
        return await super().reset(task, seed)
    @tool
    async def add(self, number: int) -> str:
        """Add."""
        self.total += number
        return str(self.total)
    async def verify(self, trajectory):
        right = self.total == trajectory.task.secret["n"]
        return Verdict(float(right), right)
    def oracle(self, task):
        call = Action("", calls=(ToolCall("add", {"number": 1}),))
        return [call] * task.secret["n"] + [Action("", answer="done")]
    def snapshot(self): return json.dumps(self.total).encode()
    def restore(self, state): self.total = json.loads(state)

class Wordy(Counter):
    def reset(self, task, seed):
        return task.prompt

class Silent(Counter):
    def step(self, action):
        pass

class Printing(Counter):
    @tool
    async def add(self, number: int) -> str:
        """Add."""
        print("adding", number, flush=True, end="")
        os.system("echo from another program")
        return await super().add(number)

class Hashed(Counter):
    @tool
    async def add(self, number: int) -> str:
        """Add."""
        return f"{await super().add(number)} {hash('word')}"

class Shy(Counter):
    def tasks(self, split):
        if sys.argv[0].endswith("measurement.py"):  # the other process
            raise OSError("not here")
        return super().tasks(split)

class Forgetful(Counter):
    def restore(self, state): self.total = 0

class Talkative(Counter):
    @tool
    async def add(self, number: int) -> str:
        """Add."""
        self.shared["total"] += 1
        before = self.shared["total"]
        await asyncio.sleep(0.001)
        return f"{await super().add(number)} {self.shared['total'] - before}"

class Blind(Counter):
    snapshot = Environment.snapshot
    def oracle(self, task): return Environment.oracle(self, task)

class Partial(Counter):
    warnings = ["2 records were left out"]
    def oracle(self, task):
        return Environment.oracle(self, task) if task.secret["n"] > 3 else super().oracle(task)
'''


own = module("own.py", OWN)


@pytest.mark.long
@pytest.mark.parametrize("name", ["Counter", "Printing"])
def test_a_sound_environment(own: Path, name: str) -> None:
    row = measure(f"{own}:{name}", {}, 100)
    assert (row.tasks, row.oracle, row.noop) == (40, 1.0, 0.0)
    assert 0.0 < row.random < 0.6  # adds a number of the prompt or another one, some times
    assert row.deterministic
    assert row.snapshot
    assert row.concurrent
    assert row.steps_per_second > 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "defect"),
    [
        ("Hashed", "deterministic"),
        ("Shy", "deterministic"),
        ("Forgetful", "snapshot"),
        ("Talkative", "concurrent"),
    ],
)
def test_each_defect_is_found(own: Path, name: str, defect: str) -> None:
    row = measure(f"{own}:{name}", {}, COMPARED)
    found = {key for key in ("deterministic", "snapshot", "concurrent") if not getattr(row, key)}
    assert found == {defect}
    assert row.oracle == 1.0


@pytest.mark.parametrize(("name", "method"), [("Wordy", "reset"), ("Silent", "step")])
def test_a_method_that_returns_something_else_is_named(own: Path, name: str, method: str) -> None:
    with pytest.raises(DataError, match=f"{name}.{method} returned .*: return "):
        measure(f"{own}:{name}", {}, COMPARED)


@pytest.mark.long
def test_what_cannot_be_measured_is_none(own: Path) -> None:
    row = measure(f"{own}:Blind", {}, 4)
    assert (row.oracle, row.snapshot) == (None, None)
    assert row.deterministic
    (missing,) = measure_all(["recorded_calls"], 4)
    assert "set environment.options.tasks" in missing.note
    assert missing.tasks is None
    with pytest.raises(ConfigError, match="did you mean 'search'"):
        measure("serch", {}, 4)


@pytest.mark.long
def test_the_oracle_is_of_the_tasks_that_it_knows(own: Path) -> None:
    row = measure(f"{own}:Partial", {}, 7)
    assert (row.oracle, row.noop, row.played, row.oracle_played) == (1.0, 0.0, 7, 3)
    assert row.warnings[0] == "2 records were left out"
    assert "the oracle is of the " in row.warnings[1]
    console = Console(width=80, record=True)
    console.print(environments_table([asdict(row)]))
    told = " ".join(console.export_text().split())  # its lines end where the path to the file says
    assert "Partial: 2 records were left out" in told


def test_the_table_says_no_in_capitals() -> None:
    row = Measurement("function_calling", 20000, 1.0, 0.0, 0.125, True, None, False, 12.4)
    console = Console(width=80, record=True)
    console.print(environments_table([vars(row), vars(Measurement("b", note="[/a]: give a file"))]))
    text = console.export_text()
    assert all(part in text for part in ("100.0%", "12.5%", "yes –   NO", "b: [/a]: give a file"))
    assert "…" not in text


def test_tasks_are_spread_over_all() -> None:
    tasks = [Task(str(number), "") for number in range(10)]
    assert [task.id for task in spread(tasks, 3)] == ["0", "3", "6"]
    assert spread(tasks, 10) == spread(tasks, 11) == tasks


def test_random_arguments_fit_their_schemas(own: Path) -> None:
    stream = random.Random(0)
    tools = make_environment(f"{own}:Counter", {}).tools()
    for _ in range(50):
        *calls, last = random_script(tools, Task("t", "Add 3 plums"), stream)
        assert last.answer in ("Add", "3", "plums")
        for action in calls:
            tools[0].check(action.calls[0].arguments)
    schemas: dict[str, dict[str, Any]] = {
        "bool": {"type": "boolean"},
        "str": {"enum": ["a", "b"]},
        "list": {"type": "array", "items": {"type": "integer"}},
        "int": {"type": "integer"},
    }
    for kind, schema in schemas.items():
        assert type(random_value(schema, ["x"], stream)).__name__ == kind
    assert random_script([], Task("t", ""), stream)[-1].answer == "nothing"


def test_each_environment_is_an_audit_of_what_could_be_measured(tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    folder.begin(check_recipe({"name": "x", "environment": {"name": "search"}}, "test"))
    measured = Measurement(
        *("a", 20, 1.0, 0.0, None, True, None, False, 50.0),
        weaknesses=("lists",),
        played=8,
        oracle_played=4,
    )
    write_measurements(folder, [asdict(measured), asdict(Measurement("b", note="no docker"))])
    assert list(audits(folder.path)) == ["environment-1", "environment-2"]
    found = read_audit(folder.path, "environment-1")["findings"]
    assert [(one.figure, one.passed) for one in found] == [
        (20, None),
        (1.0, None),
        (0.0, None),
        (None, True),
        (None, False),
        (50.0, None),
        (None, False),
    ]
    assert found[0].note == "8 of them were played"
    assert (found[1].low, found[1].high) == pytest.approx((0.5101, 1.0), abs=1e-4)
    assert (found[2].low, found[2].high) == pytest.approx((0.0, 0.3244), abs=1e-4)
    (only,) = read_audit(folder.path, "environment-2")["findings"]
    assert only.note == "no docker"


def test_names_with_options_as_on_a_command_line() -> None:
    words = ["gymnasium", "id=Taxi-v4", "arguments.rainy=true", "success=1", "a/b.py:C", "sql"]
    assert named_with_options(words) == [
        ("gymnasium", {"id": "Taxi-v4", "arguments": {"rainy": True}, "success": 1}),
        ("a/b.py:C", {}),
        ("sql", {}),
    ]
    with pytest.raises(ConfigError, match="id=Taxi-v4: name the environment first"):
        named_with_options(["id=Taxi-v4"])
    with pytest.raises(ConfigError, match="5: name one only, and write its options as key=value"):
        offer_of("village", ["5"], 1, 60.0)
    with pytest.raises(ConfigError, match="f1: name one only"):
        rewards(["length", "f1"])
    with pytest.raises(ConfigError, match="length is a part: its options"):
        rewards(["length", "budget=3"])

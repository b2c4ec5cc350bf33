"""Replay: what differs in another process, in another order, and at once."""

import asyncio
from pathlib import Path

import pytest

from asking import Asking, subject_for
from turnwise.storage.audits import Finding
from turnwise.types import Observation, Outcome, Task
from turnwise_trust.audit import replay as replayed
from turnwise_trust.audit.calls import EnvironmentRaised
from turnwise_trust.audit.plays import AT_ONCE, Script, difference, played
from turnwise_trust.audit.replay import DETERMINISM, ISOLATION, replay
from turnwise_trust.audit.subject import OutOfTime, subject_of

PAGE = '''
import os, random
from turnwise import Environment, Task, Verdict, tool
from turnwise.types import Action, Observation

class Sound(Environment):
    def tasks(self, split):
        unlike_json = {"words": {"one", "two", "three"}, "check": self.verify, (0, 1): "x"}
        return [Task(f"{split}{n}", f"Say {n}.", {"n": n, **unlike_json}) for n in range(2)]

    def reset(self, task, seed):
        return Observation(self.shown(task))

    def shown(self, task):
        return task.prompt

    def verify(self, trajectory):
        return Verdict(0.0, False)

    def oracle(self, task):
        return [Action("", answer=str(task.secret["n"]))]

class Hashed(Sound):
    def shown(self, task):
        return f"{task.prompt} {hash(task.prompt) % 1000}"

class Drawn(Sound):
    def shown(self, task):
        return f"{task.prompt} {random.random()}"

class Other(Sound):
    def tasks(self, split):
        return [Task(f"{split}{n}", "Say.", {"n": hash(split)}) for n in range(2)]

    def oracle(self, task):
        return [Action("", answer="")]

class Leaking(Sound):
    played = []

    def shown(self, task):
        self.played.append(task.id)
        return f"{task.prompt} Episode {len(self.played)}."

class Remembering(Sound):
    solved = set()

    def verify(self, trajectory):
        first = trajectory.task.id not in self.solved
        self.solved.add(trajectory.task.id)
        return Verdict(float(first), first)

class Shared(Sound):
    """The scene stands in the prototype: episodes at once overwrite it."""

    now = {}

    async def reset(self, task, seed):
        self.now["task"] = task.id
        return Observation(task.prompt)

    async def step(self, action):
        import asyncio
        from turnwise.types import Step
        await asyncio.sleep(0.001)
        return Step(Observation(self.now["task"]), done=True)

class Exiting(Sound):
    def tasks(self, split):
        if os.environ.get("PYTHONHASHSEED") == "1":
            raise OSError("the file is gone")
        return super().tasks(split)
'''


def found_in(folder: Path, name: str) -> dict[str, Finding]:
    file = folder / "played.py"
    file.write_text(PAGE)
    return {one.check: one for one in replay(subject_of(f"{file}:{name}", {}, 4))}


@pytest.mark.long
def test_a_sound_environment_is_the_same_in_other_processes_and_orders(tmp_path: Path):
    rows = found_in(tmp_path, "Sound")
    assert [one.passed for one in rows.values()] == [True, True]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Hashed", "task train0, oracle actions, first message: '"),
        ("Drawn", "task train0, oracle actions, first message: '"),
        ("Other", "tasks() gives others"),
    ],
)
def test_what_a_seed_does_not_determine_is_named(tmp_path: Path, name: str, said: str):
    rows = found_in(tmp_path, name)
    assert rows[DETERMINISM].passed is False
    assert said in rows[DETERMINISM].note
    assert rows[ISOLATION].passed is None


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "Leaking",
            "after others: task train0, oracle actions, first message: 'Say 0. Episode 1.'",
        ),
        ("Remembering", "after others: task train0, oracle actions, outcome: 'success'"),
        ("Shared", "at once: task train0, oracle actions, turn 1, observation: 'train0'"),
    ],
)
def test_what_an_episode_leaves_to_another_is_named(tmp_path: Path, name: str, said: str):
    rows = found_in(tmp_path, name)
    assert rows[DETERMINISM].passed
    assert rows[ISOLATION].passed is False
    assert said in rows[ISOLATION].note


@pytest.mark.long
def test_a_process_that_fails_or_is_late_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(EnvironmentRaised, match="another process cannot play: OSError: the file"):
        found_in(tmp_path, "Exiting")
    monkeypatch.setattr(replayed, "SECONDS", 0.01)
    with pytest.raises(OutOfTime):
        found_in(tmp_path, "Sound")


class Counted(Asking):
    """Counts the episodes that are under way."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.seen: list[int] = []

    async def reset(self, task: Task, seed: int) -> Observation:
        self.inside.append(task.id)
        self.seen.append(len(self.inside))
        await asyncio.sleep(0.01)
        return await super().reset(task, seed)

    async def close(self) -> None:
        self.inside.pop()


def test_an_episode_that_the_clock_cut_off_is_no_difference():
    whole, other = ([{"first message": ""}, {"outcome": end}] for end in ("success", "failure"))
    late = [{"first message": ""}, {"outcome": Outcome.TRUNCATED_TIME.value}]
    assert difference(whole, other) == "outcome: 'success', then 'failure'"
    assert difference(whole, late) == difference(late, whole) == ""


def test_no_more_episodes_are_played_at_once_than_a_server_has_room_for():
    environment = Counted()
    subject = subject_for(environment)
    idle = [Script("idle", task, []) for task in subject.tasks]
    assert len(played(subject, idle, at_once=True)) == 12
    assert max(environment.seen) == AT_ONCE

"""Alarms in a run: said once, and kept in its folder."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.small_runs import Listening, train, write_recipe
from turnwise.errors import ConfigError
from turnwise.storage.audits import Finding, read_audit, write_audit
from turnwise.storage.run_folder import RunFolder
from turnwise.types import Action, Group, Outcome, Task, Trajectory, Turn, Verdict
from turnwise_trust.alarms import Alarms
from turnwise_trust.doctor.diagnosis import diagnosed
from turnwise_trust.doctor.reading import read

TABLES = """
engine.max_sequences = 16
rollout = { max_turns = 1, max_turn_tokens = 8, max_tokens = 400 }
train = { steps = 3, tasks_per_step = 4, group_size = 4 }
evaluation.tasks = 0
"""
PAID_FOR_ANYTHING = """
from random import Random
from turnwise import Environment, Task, Verdict
from turnwise.environments.base import EnvironmentSpec
from turnwise.environments.turn_parts import share

class Paid(Environment):
    facts = EnvironmentSpec("paid", "1", parts={"right": share("whether it is right")})

    def tasks(self, split):
        return [Task(f"{split}{number}", f"{split} {number}?") for number in range(20)]

    def verify(self, trajectory):
        paid = Random(trajectory.seed).random() < 0.8
        return Verdict(float(paid), paid, {"right": 0.0})
"""


@pytest.mark.long
def test_a_run_that_is_paid_for_what_is_wrong_says_so(tmp_path: Path) -> None:
    file = tmp_path / "paid.py"
    file.write_text(PAID_FOR_ANYTHING)
    recipe = write_recipe(tmp_path, f"{file}:Paid", TABLES)
    with pytest.raises(ConfigError, match="did you mean 'right'"):
        train(recipe, RunFolder.new(tmp_path / "wrong"), "alarms.heldout_reward=rihgt")
    folder, display = RunFolder.new(tmp_path / "run"), Listening()
    train(recipe, folder, "alarms.heldout_reward=right", "audit.seconds=0", display=display)
    said = [line for line in display.said if line.startswith("alarm at step")]
    assert len(said) == 1
    assert said[0].startswith("alarm at step 2: the held-out verifier refuses what is paid: of ")
    (finding,) = read_audit(folder.path, "alarms")["findings"]
    assert finding.passed is False
    assert finding.figure == 0
    assert re.match(r"turnwise show RUN --step 2 --outcome success: \S*train\d+", finding.replay)
    assert finding.check in {one.check for one in diagnosed(read([folder.path], {})).failed}


@pytest.mark.parametrize("resumed", [0, 12])
def test_what_two_looks_find_is_an_alarm_in_a_run_that_goes_on_too(
    tmp_path: Path, resumed: int
) -> None:
    """Success rises, and the part of the verdict that stands for a right answer falls."""
    turn = Turn(Action("I say whatever is paid."))
    paid = Trajectory(Task("a", "a"), "a", 0, 0, turns=(turn,), outcome=Outcome.SUCCESS)
    paid = replace(paid, verdict=Verdict(1.0, True))
    folder, said = RunFolder.new(tmp_path / "run"), list[str]()
    (folder.path / "trajectories").mkdir(parents=True)
    alarms = Alarms(folder, 0, said.append, "")
    for step in range(1, 21):
        folder.write_trajectories(f"step-{step:06d}", [Group("a", (paid,))])
        metrics = {
            "reward/mean": 0.3 + 0.03 * step,
            "rollout/success": 0.3 + 0.03 * step,
            "reward/parts/exact_match": 0.5 - 0.02 * step,
        }
        folder.append("metrics.jsonl", {"step": step, **metrics})
        alarms.log(metrics, step)
        if step == resumed:
            alarms = Alarms(folder, step, said.append, "")
    assert [line.partition(": ")[0] for line in said] == ["alarm at step 15"]
    assert said[0].split(": ")[1] == "reward without success"
    assert "step 15): «I say whatever is paid.»" in said[0]
    assert said[0].endswith("turnwise show RUN --step 15")


def test_replies_of_a_judge_are_no_episodes(tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    (folder.path / "trajectories").mkdir(parents=True)
    names = ("task/1", "refinement/1/1")
    played = [
        Trajectory(Task(name, name), name, 0, 0, outcome=Outcome.SUCCESS, verdict=Verdict(1, True))
        for name in names
    ]
    groups = [Group(one.group, (one,)) for one in played]
    folder.write_trajectories("step-000001", groups)
    alarms = Alarms(folder, 0, print, "")
    alarms.log({"reward/mean": 1.0}, 1)
    assert len(alarms._judged[0].groups) == 1


def test_alarms_before_a_resume_are_kept(tmp_path: Path) -> None:
    folder, said = RunFolder.new(tmp_path / "run"), list[str]()
    (folder.path / "trajectories").mkdir(parents=True)
    folder.append("metrics.jsonl", {"step": 1, "reward/mean": 0.0})  # its trajectories are gone
    write_audit(folder, "alarms", "Alarms", [Finding("an alarm", passed=False)])
    alarms = Alarms(folder, 1, said.append, "")
    assert alarms._said.keys() == {"an alarm"}
    assert said == []

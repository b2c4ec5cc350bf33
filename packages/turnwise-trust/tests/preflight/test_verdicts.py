"""Each verdict on small environments whose policies are scripts, and on input that is bad."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tests.rollout.playing import decode, encode, rolling
from turnwise.config import Recipe, check_recipe
from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.errors import ConfigError, ToolError
from turnwise.rollout.order import RolloutSchedule
from turnwise.storage.audits import Finding
from turnwise.tools.tool import tool
from turnwise.types import Action, Observation, Step, Task, ToolCall, Trajectory, Verdict
from turnwise_trust.page import Page
from turnwise_trust.preflight.decision import Verdict as Advice
from turnwise_trust.preflight.decision import decide
from turnwise_trust.preflight.facts import exactly
from turnwise_trust.preflight.keeping import folder_of, keep, kept
from turnwise_trust.preflight.rehearsal import Rehearsal, Wave, play, rehearsal
from turnwise_trust.preflight.report import page_of
from turnwise_trust.preflight.updating import Update

LANDS = [f"land {number}" for number in range(40)]
RIGHT, WRONG, LOOK = "<answer> yes</answer>", "<answer> no</answer>", "<look> here</look>"


class Plain(Environment):
    """Forty questions that have one answer; no tool."""

    facts = EnvironmentSpec("plain", "1")

    def tasks(self, split: str) -> Sequence[Task]:
        return [Task(f"{split} {land}", f"{split} {land}?", {"answers": ["yes"]}) for land in LANDS]

    def verify(self, trajectory: Trajectory) -> Verdict:
        right = trajectory.answer == "yes"
        return Verdict(float(right), right)


class Looking(Plain):
    """The same with a tool, and an oracle."""

    @tool
    def look(self, where: str) -> str:
        """Look somewhere."""
        if where == "nowhere":
            raise ToolError("there is nothing")
        return "It is yes."

    def oracle(self, task: Task) -> Sequence[Action]:
        look = ToolCall("look", {"where": "here"})
        return [Action(LOOK, calls=(look,)), Action(RIGHT, answer="yes")]


class Unknown(Looking):
    """The same without an oracle."""

    oracle = Environment.oracle


class Raising(Looking):
    """A verifier that raises for what it did not expect."""

    def verify(self, trajectory: Trajectory) -> Verdict:
        return Verdict(float({"yes": True}[trajectory.answer or ""]), True)


class Unmade(Looking):
    """A scene that often cannot be set."""

    def __init__(self) -> None:
        self.chance = random.Random(1)

    def reset(self, task: Task, seed: int) -> Any:
        if self.chance.random() < 0.3:
            raise OSError("no more containers")
        return super().reset(task, seed)


class Idle(Looking):
    """Pays for an answer that is not wrong."""

    def verify(self, trajectory: Trajectory) -> Verdict:
        right = trajectory.answer != "no"
        return Verdict(float(right), right)


class Unpaid(Looking):
    """Pays the same whatever comes of it."""

    def verify(self, trajectory: Trajectory) -> Verdict:
        return Verdict(1.0, trajectory.answer == "yes")


class Refusing(Looking):
    """Refuses what its own oracle says, in half of the tasks."""

    def verify(self, trajectory: Trajectory) -> Verdict:
        right = trajectory.answer == ("yes" if trajectory.task.id[-1] in "02468" else "yes!")
        return Verdict(float(right), right)


class Noisy(Looking):
    """Turns every sixth verdict round."""

    def __init__(self, share: float = 1 / 6) -> None:
        self.share, self.chance = share, random.Random(2)

    def verify(self, trajectory: Trajectory) -> Verdict:
        right = (trajectory.answer == "yes") != (self.chance.random() < self.share)
        return Verdict(float(right), right)


class Walk(Looking):
    """Twelve looks and an answer; each look is rewarded."""

    def step(self, action: Action) -> Any:
        return self.paid(action)

    async def paid(self, action: Action) -> Step:
        step = await super().step(action)
        good = any(call.arguments["where"] == "here" for call in action.calls)
        return replace(step, reward=0.01 * good)


class Parts(Looking):
    """The same, where the verdict tells how many looks were good."""

    def verify(self, trajectory: Trajectory) -> Verdict:
        right = trajectory.answer == "yes"
        turns = [float("here" in turn.action.text) for turn in trajectory.turns]
        return Verdict(float(right), right, {"good": sum(turns)}, turn_parts={"good": turns})


Script = Callable[[random.Random, int, int], str]
"""(chance, number of the task, turn) -> what is written."""


def sometimes(share: float, one: str = RIGHT, other: str = WRONG) -> Script:
    return lambda chance, task, turn: one if chance.random() < share else other


def first_looking(share: float) -> Script:
    return lambda chance, task, turn: sometimes(share)(chance, task, turn) if turn else LOOK


def walking(share: float) -> Script:
    def write(chance: random.Random, task: int, turn: int) -> str:
        if turn < 12:
            return f"<look> {chance.choice(['here', 'far'])}</look>"
        return sometimes(share)(chance, task, turn)

    return write


def examined(environment: Environment, script: Script, **changes: Any) -> Page:
    """The page of a policy that is a script."""
    return page_of(rehearsed(environment, script, **changes), Update(None, "a script"), 0.05)


def rehearsed(
    environment: Environment,
    script: Script,
    groups: int = 16,
    seconds: float = 60,
    **changes: Any,
) -> Rehearsal:
    recipe, chance = recipe_of(**changes), random.Random(0)

    def policy(session: str, prompt: list[int]) -> list[int]:
        shown = decode(prompt)
        task = int(shown.split("?")[0].split()[-1])
        return encode(script(chance, task, shown.count("<information>")))

    limits = RolloutSchedule(recipe.rollout).limits(0)
    runner = rolling(environment, policy, limits, seats=8)
    train = environment.tasks("train")
    waves = asyncio.run(play(recipe, runner, train, seconds, groups))
    return rehearsal(recipe, runner, train, environment.tasks("heldout"), waves)


def recipe_of(**changes: Any) -> Recipe:
    values: dict[str, Any] = {"name": "case", "environment": {"name": "plain"}}
    values["train"] = {"tasks_per_step": 8, "group_size": 8, **changes.pop("train", {})}
    values["rollout"] = {"max_turns": 16, "max_turn_tokens": 60, "max_tool_calls": 16, **changes}
    return check_recipe(values, "case")


JUNK, TOLD, LONG = "yes or no", "The answer is yes.", f"<answer> {'well ' * 40}</answer>"
ONE = {"max_turns": 1}
WALKS = {"groups": 6}
CASES = [
    (Advice.PROMPT, Unknown(), sometimes(0.7, JUNK, RIGHT), "in form succeed in 100%", ONE),
    (Advice.PROMPT, Looking(), lambda *_: TOLD, "stands in 100% of those", ONE),
    (Advice.PROMPT, Looking(), sometimes(0.7, LONG, RIGHT), "in form succeed in 100%", ONE),
    (Advice.IMITATE, Looking(), lambda *_: WRONG, "The environment's oracle plays them", {}),
    (Advice.IMITATE, Unknown(), lambda *_: "<answer>", "no oracle and no success", ONE),
    (Advice.IMITATE, Unknown(), sometimes(0.003), "rejection sampling", {}),
    (Advice.ENVIRONMENT, Raising(), sometimes(0.5), "have no grade", {}),
    (Advice.ENVIRONMENT, Unmade(), sometimes(0.5), "have no grade", {}),
    (Advice.ENVIRONMENT, Idle(), sometimes(0.5), "does nothing solves 100%", {}),
    (Advice.ENVIRONMENT, Refusing(), sometimes(0.5), "own oracle solves", {}),
    (Advice.ENVIRONMENT, Noisy(), sometimes(0.5), "noise in part", {}),
    (Advice.ENVIRONMENT, Unpaid(), sometimes(0.5), "paid for is not success", {}),
    (Advice.RL, Unknown(), sometimes(0.3), "have rewards to compare", {}),
    (Advice.RL, Looking(), first_looking(0.6), "have rewards to compare", {}),
    (Advice.RL, Looking(), sometimes(0.05), "have rewards to compare", {}),
    pytest.param(Advice.TURNS, Walk(), walking(0.0), "13 turns", WALKS, marks=pytest.mark.long),
    pytest.param(Advice.TURNS, Parts(), walking(0.02), "13 turns", WALKS, marks=pytest.mark.long),
    (Advice.TURNS, Walk(), walking(0.1), "13 turns", WALKS),
    (Advice.DONT, Looking(), sometimes(0.99), "no room", {}),
    (Advice.DONT, Plain(), sometimes(0.4), "a question and its answer", {}),
    (Advice.DONT, Noisy(0.5), sometimes(0.5), "no verifier", {}),
    (Advice.DONT, Looking(), lambda _, task, turn: RIGHT if task % 2 else WRONG, "or in none", {}),
    (Advice.UNDECIDED, Looking(), sometimes(0.5), "5 groups", {"groups": 5}),
]


@pytest.mark.parametrize(("advice", "environment", "script", "why", "changes"), CASES)
def test_a_prepared_case_gets_its_verdict(
    advice: Advice, environment: Environment, script: Script, why: str, changes: dict[str, Any]
):
    verdict = examined(environment, script, **changes).verdict
    assert verdict.startswith(f"{advice}: ")
    assert why in verdict


def test_one_verdict_that_is_turned_round_among_many_alike_is_no_coin():
    facts = {name: exactly(0.5) for name in ("signal", "success")} | {"groups": exactly(16)}
    facts |= {"agreement": exactly(0.99), "beyond chance": exactly(0.0)}
    assert decide(facts, {"enough signal": 0.1, "ceiling": 0.95}).verdict is Advice.RL


def found(page: Page, check: str) -> Finding:
    return next(one for one in page.findings if one.check == check)


def test_what_raises_is_counted_and_shown():
    page = examined(Raising(), sometimes(0.5))
    ungraded = found(page, "ungraded episodes")
    assert ungraded.passed is False
    assert "KeyError: 'no'" in ungraded.note


def test_an_oracle_that_raises_is_said_beside_the_verdict():
    class Broken(Looking):
        def oracle(self, task: Task) -> Sequence[Action]:
            raise KeyError("answers")

    oracle, *_ = examined(Broken(), sometimes(0.5)).failed
    assert oracle.check == "the oracle"
    assert "oracle() of task train land 0 raises KeyError" in oracle.note


def test_pass_at_k_is_the_mean_over_all_choices_of_k_episodes():
    played = rehearsed(Looking(), sometimes(0.3), groups=10)
    page = page_of(played, Update(None, "a script"), 0.05)
    assert found(page, "minutes of an evaluation").note.startswith("40 episodes")  # tasks there are
    for k in (1, 2, 4, 8):
        of_tasks = []
        for group in played.groups:
            successes = [one.verdict.success for one in group.trajectories if one.verdict]
            of_tasks.append(fmean(any(chosen) for chosen in combinations(successes, k)))
        assert found(page, f"pass@{k}").figure == pytest.approx(fmean(of_tasks))


def test_nothing_is_left_of_a_page_without_any_grade():
    page = examined(Raising(), lambda *_: WRONG)
    assert page.verdict.startswith("Mend the environment: 100% of the episodes have no grade")
    assert not any(one.check == "groups with mixed rewards" for one in page.findings)
    assert found(page, "pass@8").figure is None
    assert "0 tasks, 16 have fewer than 8 grades" in found(page, "pass@8").note


def test_waves_that_do_not_end_are_an_error():
    class Waiting(Looking):
        async def reset(self, task: Task, seed: int) -> Observation:
            await asyncio.sleep(60)
            return await super().reset(task, seed)

    runner = rolling(Waiting(), lambda *_: encode(RIGHT), recipe_of().rollout)
    with pytest.raises(ConfigError, match=r"^16 episodes did not end within"):
        asyncio.run(play(recipe_of(), runner, Waiting().tasks("train"), 0.05, 8))


@pytest.mark.long
def test_a_later_wave_that_does_not_end_is_given_up():
    class Slowing(Looking):
        shown: list[str] = []

        async def reset(self, task: Task, seed: int) -> Observation:
            self.shown.append(task.id)
            await asyncio.sleep(60 if len(self.shown) > 16 else 0)
            return await super().reset(task, seed)

    runner = rolling(Slowing(), lambda *_: encode(RIGHT), recipe_of().rollout)
    work = play(recipe_of(), runner, Slowing().tasks("train"), 1.0, 8, late=0.2)
    assert [len(wave.groups) for wave in asyncio.run(work)] == [2]


def test_what_was_played_before_it_is_stopped_is_kept():
    environment, turns = Looking(), iter(range(10_000))

    async def work() -> list[Wave]:
        def policy(session: str, prompt: list[int]) -> list[int]:
            if next(turns) == 40:
                playing.cancel()
            return encode(RIGHT)

        runner = rolling(environment, policy, recipe_of().rollout)
        playing = asyncio.create_task(play(recipe_of(), runner, environment.tasks("train"), 60, 24))
        return await playing

    assert [len(wave.groups) for wave in asyncio.run(work())] == [2]


def test_a_preflight_goes_on_with_the_waves_of_its_folder(tmp_path: Path):
    environment, played = Looking(), list[str]()
    recipe, tasks = recipe_of(), environment.tasks("train")

    def policy(session: str, prompt: list[int]) -> list[int]:
        played.append(session)
        return encode(RIGHT)

    def go_on(most: int) -> list[Wave]:
        folder = folder_of(tmp_path / "kept", recipe, None)
        before, runner = kept(folder, tasks), rolling(environment, policy, recipe.rollout)
        work = play(recipe, runner, tasks, 60, most, before, partial(keep, folder))
        return asyncio.run(work)

    first = go_on(2)
    count = len(played)
    both = go_on(4)
    assert len(played) == 2 * count
    names = [group.id for wave in both for group in wave.groups]
    assert names[:2] == [group.id for group in first[0].groups]
    assert len({*names}) == 4
    again = both[0].groups[0].trajectories[0]
    assert again.task.secret == {"answers": ["yes"]}
    assert again.reward == first[0].groups[0].trajectories[0].reward == 1
    assert len(again.tokens) == len(first[0].groups[0].trajectories[0].tokens) > 0
    with pytest.raises(ConfigError, match="another recipe"):
        folder_of(tmp_path / "kept", recipe, Path("weights"))


def test_noise_of_the_verifier_leaves_a_perfect_policy_less():
    turned = examined(Noisy(), sometimes(0.5), groups=24)
    row = found(turned, "agreement of repeated verdicts")
    seen = float(row.note.rpartition(" ")[2].rstrip("%")) / 100
    assert row.figure == pytest.approx(seen**2 + (1 - seen) ** 2, abs=0.002)
    assert 0.75 < seen < 0.92  # each sixth verdict is turned round


def test_an_idle_agent_may_earn_what_the_environment_declares():
    class Declared(Idle):
        @property
        def spec(self) -> EnvironmentSpec:
            return EnvironmentSpec("declared", "1", reference_scores={"noop": 1.0})

    assert examined(Declared(), sometimes(0.5)).verdict.startswith("RL: ")


def test_the_oracle_is_not_bound_by_the_recipes_first_horizon():
    page = examined(Looking(), walking(0.1), groups=6, max_turns=16, horizon={"turns": 1})
    assert found(page, "the oracle").figure == 1


def test_groups_of_one_are_compared_with_each_other():
    page = examined(Looking(), sometimes(0.5), train={"group_size": 1})
    assert page.verdict.startswith("RL: ")


def test_an_overlap_of_train_and_heldout_is_a_failure_beside_the_verdict():
    class Same(Looking):
        def tasks(self, split: str) -> Sequence[Task]:
            tasks = super().tasks(split)
            return tasks if split == "train" else [*super().tasks("train")[:10], *tasks[10:]]

    shared = found(examined(Same(), sometimes(0.3)), "overlap of train and held-out tasks")
    assert (shared.figure, shared.passed) == (0.25, False)


def test_the_same_script_has_the_same_verdict_and_figures():
    pages = [examined(Looking(), sometimes(0.3), groups=6) for _ in range(2)]
    first, second = (
        [one.figure for one in page.findings if not one.check.startswith(("seconds", "minutes"))]
        for page in pages
    )
    assert first == second


def test_too_little_time_is_said_with_what_was_to_be_played():
    with pytest.raises(ConfigError, match=r"^8 episodes did not end within 0 seconds: raise --sec"):
        rehearsed(Looking(), sometimes(0.5), groups=1, seconds=0, train={"group_size": 8})

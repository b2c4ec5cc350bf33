"""The agent loop: outcomes, budgets, provenance, leaks (promises 1, 3, 4, 8 and 10)."""

import asyncio
import math
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.fakes import CAPITALS, Capitals
from tests.rollout.clockwork import run
from tests.rollout.playing import (
    ANSWER,
    LOOKUP,
    TOKENIZER,
    Breaking,
    Sampled,
    decode,
    encode,
    rolling,
)
from turnwise.config import RolloutConfig
from turnwise.engines.base import Completion, StopReason
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.base import Environment
from turnwise.errors import InfrastructureError, RunStoppedError
from turnwise.rollout.runner import group_names
from turnwise.tokens import Source
from turnwise.tools.tool import tool
from turnwise.types import Action, Observation, Outcome, Step, Task, Trajectory, Verdict

LIMITS = RolloutConfig(max_turns=4, max_turn_tokens=80, max_tokens=700, max_ungraded_share=1.0)


def play(
    turns: Sequence[str],
    environment: Environment | None = None,
    limits: RolloutConfig = LIMITS,
    engine: Any = None,
    by: Callable[[Callable[[], Any]], Any] = lambda work: asyncio.run(work()),
) -> Trajectory:
    """One episode in which the policy says `turns`, the last of them again and again; `by` a loop
    of this process's clock or by `run`."""
    environment = environment or Capitals()
    said = iter(turns)
    last = turns[-1] if turns else ""
    engine = engine or ScriptedEngine(lambda session, prompt: encode(next(said, last)))
    runner, task = rolling(environment, engine, limits), Capitals().tasks("train")[0]
    (group,) = by(lambda: runner.collect([task], 1, 0, "test"))
    return group.trajectories[0]


def test_success_and_every_token_accounted_for() -> None:
    trajectory = play([LOOKUP, ANSWER])
    assert trajectory.outcome == Outcome.SUCCESS
    assert trajectory.reward == 1.0
    tokens = trajectory.tokens
    text = decode(tokens.ids)
    shown = "\n<information> The capital is Paris.</information>\n"
    assert text == f"Capital of France?\n{LOOKUP}{shown}{ANSWER}"
    assert decode(tokens.ids[tokens.mask]) == LOOKUP + ANSWER
    tool = tokens.ids[tokens.source == Source.TOOL]
    assert decode(tool) == " The capital is Paris."
    assert (np.diff(tokens.turn) >= 0).all()


def test_sampled_ids_are_kept_even_when_decoding_and_encoding_would_change_them() -> None:
    """The tag is spelt letter by letter, which the tokenizer never would."""
    letters = [TOKENIZER.convert_tokens_to_ids(letter) for letter in "<answer>Paris</answer>"]
    assert encode("<answer>Paris</answer>") != letters
    trajectory = play([""], engine=ScriptedEngine(lambda session, prompt: letters))
    assert trajectory.tokens.ids[trajectory.tokens.mask].tolist() == letters
    assert trajectory.outcome == Outcome.SUCCESS


def test_half_of_a_surrogate_pair_is_text_that_can_be_encoded() -> None:
    """JSON can hold one, and so can what an environment makes of it."""
    half = "x\ud800y"

    class Odd(Capitals):
        async def reset(self, task: Task, seed: int) -> Observation:
            return Observation(task.prompt + half, Source.USER)

        async def step(self, action: Action) -> Step:
            return replace(await super().step(action), observation=Observation(half))

        async def verify(self, trajectory: Trajectory) -> Verdict:
            return replace(await super().verify(trajectory), detail=half)

    trajectory = play([LOOKUP, ANSWER], Odd())
    assert trajectory.outcome == Outcome.SUCCESS
    assert decode(trajectory.tokens.ids).count("x?y") == 2
    assert trajectory.verdict == Verdict(1.0, True, {"exact_match": 1.0}, "x?y")
    assert Task("id", half).prompt == "x?y"


def test_the_secret_reaches_neither_environment_nor_prompt() -> None:
    seen: list[Task] = []

    class Nosy(Capitals):
        async def reset(self, task: Task, seed: int) -> Observation:
            seen.append(task)
            return Observation(f"{task.prompt} {dict(task.secret)}", Source.USER)

    trajectory = play(["<answer> I pass</answer>"], Nosy())
    assert not seen[0].secret
    assert "Paris" not in decode(trajectory.tokens.ids)
    assert trajectory.reward == 0.0


def test_a_malformed_action_is_corrected_and_counts() -> None:
    trajectory = play(["no tags", LOOKUP, ANSWER])
    assert trajectory.outcome == Outcome.SUCCESS
    assert len(trajectory.turns) == 3
    corrected = trajectory.tokens.ids[trajectory.tokens.source == Source.ENVIRONMENT]
    assert "no complete action" in decode(corrected)
    assert play(["no tags"]).outcome == Outcome.AGENT_PARSE_ERROR


@pytest.mark.parametrize(
    ("changes", "turns", "outcome"),
    [
        ({"max_turns": 2}, [LOOKUP], Outcome.TRUNCATED_TURNS),
        ({"max_tool_calls": 1}, [LOOKUP, LOOKUP, ANSWER], Outcome.TRUNCATED_TOOL_CALLS),
        ({"max_tokens": 64}, [LOOKUP, ANSWER], Outcome.TRUNCATED_TOKENS),
        ({"max_seconds": 1e-9}, [LOOKUP], Outcome.TRUNCATED_TIME),
    ],
)
def test_budgets(changes: dict[str, Any], turns: list[str], outcome: Outcome) -> None:
    limits = LIMITS.model_copy(update=changes)
    trajectory = play(turns, limits=limits)
    assert trajectory.outcome == outcome
    assert len(trajectory.tokens) <= limits.max_tokens
    assert len(trajectory.turns) <= limits.max_turns
    assert trajectory.tool_calls <= limits.max_tool_calls
    assert trajectory.reward == 0.0


def test_a_hung_model_is_infrastructure() -> None:
    async def hang(prompt: Sequence[int]) -> Completion:
        await asyncio.sleep(1e5)
        raise AssertionError

    trajectory = play([""], engine=Sampled(hang), by=run)
    assert trajectory.outcome == Outcome.INFRASTRUCTURE_MODEL
    assert trajectory.reward is None


def test_waiting_for_the_model_may_take_longer_than_all_the_episodes_time() -> None:
    said = iter(["no tags", ANSWER])

    async def wait(prompt: Sequence[int]) -> Completion:
        await asyncio.sleep(2 * LIMITS.max_seconds)
        tokens = encode(next(said))
        return Completion(tokens, [math.nan] * len(tokens), StopReason.END_OF_TEXT, 0)

    trajectory = play([""], engine=Sampled(wait), by=run)
    assert trajectory.outcome == Outcome.SUCCESS


def test_a_full_context_is_an_outcome() -> None:
    async def full(prompt: Sequence[int]) -> Completion:
        return Completion([], [], StopReason.CONTEXT, 0)

    assert play([""], engine=Sampled(full)).outcome == Outcome.TRUNCATED_CONTEXT


@pytest.mark.parametrize(
    ("where", "error", "outcome"),
    [
        ("reset", OSError("no disk"), Outcome.INFRASTRUCTURE_RESET),
        ("step", ValueError("bug"), Outcome.INFRASTRUCTURE_STEP),
        ("step", TimeoutError("slow"), Outcome.INFRASTRUCTURE_STEP),
        ("verify", KeyError("gold"), Outcome.GRADER_ERROR),
        ("verify", TimeoutError("slow"), Outcome.GRADER_TIMEOUT),
        ("fresh", ValueError("bug"), Outcome.INFRASTRUCTURE_RESET),
        ("reset", SystemExit(2), Outcome.INFRASTRUCTURE_RESET),
        ("step", SystemExit(2), Outcome.INFRASTRUCTURE_STEP),
        ("verify", SystemExit(2), Outcome.GRADER_ERROR),
        # Of a task of the environment's own, which it has awaited.
        ("step", asyncio.CancelledError(), Outcome.INFRASTRUCTURE_STEP),
        ("verify", asyncio.CancelledError(), Outcome.GRADER_ERROR),
    ],
)
def test_failures_that_are_not_the_agents_are_ungraded(
    where: str, error: BaseException, outcome: Outcome
) -> None:
    trajectory = play([LOOKUP, ANSWER], Breaking(where, error))
    assert trajectory.outcome == outcome
    assert trajectory.reward is None
    if outcome != Outcome.GRADER_TIMEOUT:
        assert type(error).__name__ in trajectory.problem


def test_a_verdict_that_is_none_is_the_graders_failure() -> None:
    class Judged(Capitals):
        async def verify(self, trajectory: Trajectory) -> Verdict:
            return Verdict(math.nan, False)

    class Scored(Capitals):
        async def step(self, action: Action) -> Step:
            return replace(await super().step(action), reward=math.inf)

    for told, environment in (("reward nan", Judged()), ("reward of turn 0 inf", Scored())):
        trajectory = play([LOOKUP, ANSWER], environment)
        assert trajectory.outcome == Outcome.GRADER_ERROR
        assert trajectory.reward is None
        assert f"{told} is not a finite number" in trajectory.problem


def test_a_broken_engine_is_ungraded_and_a_bug_in_it_crashes() -> None:
    errors = iter([InfrastructureError("server gone"), IndexError("a bug")])

    async def broken(prompt: Sequence[int]) -> Completion:
        raise next(errors)

    assert play([""], engine=Sampled(broken)).outcome == Outcome.INFRASTRUCTURE_MODEL
    with pytest.raises(ExceptionGroup) as caught:
        play([""], engine=Sampled(broken))
    assert caught.group_contains(IndexError)


def test_too_many_ungraded_episodes_stop_the_run_with_the_reason() -> None:
    limits = LIMITS.model_copy(update={"max_ungraded_share": 0.5})
    with pytest.raises(RunStoppedError, match=r"1 infrastructure_reset.*no disk"):
        play([ANSWER], Breaking("reset", OSError("no disk")), limits)


def test_one_bad_episode_leaves_the_others_alone() -> None:
    class Unlucky(Capitals):
        async def reset(self, task: Task, seed: int) -> Observation:
            if task.id == "France":
                raise OSError("gone")
            return await super().reset(task, seed)

    def policy(session: str, prompt: list[int]) -> list[int]:
        (city,) = (city for land, city in CAPITALS.items() if land in decode(prompt))
        return encode(f"<answer>{city}</answer>")

    environment = Unlucky()
    runner = rolling(environment, policy, LIMITS, seats=3)
    groups = asyncio.run(runner.collect(environment.tasks("train"), 4, 0, "test"))
    assert [len(group.graded) for group in groups] == [0, 4]
    assert [member.episode for group in groups for member in group.trajectories] == [0, 1, 2, 3] * 2
    assert len({member.seed for group in groups for member in group.trajectories}) == 8


class Brief(Capitals):
    """Shows the beginning of what it found."""

    @tool
    def lookup(self, country: str) -> str:
        """Look a country up."""
        return self.truncate("The capital is Paris.", 3)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        return Verdict(0.0, False)


@pytest.mark.parametrize(("answers", "cut"), [(["Paris"], True), ("Paris", True), (7, False)])
def test_a_right_answer_that_was_cut_away_is_noted_in_a_list_or_alone(
    answers: Any, cut: bool
) -> None:
    runner = rolling(Brief(), lambda session, prompt: encode(LOOKUP), LIMITS)
    task = Task("France", "Capital of France?", {"answers": answers})
    (group,) = asyncio.run(runner.collect([task], 1, 0, "t"))
    (played,) = group.graded
    assert played.answer_cut is cut


def test_each_group_has_a_name_of_its_own() -> None:
    names = group_names("t", [Task(name, "?") for name in ("a#2", "a", "a", "b", "a", "a#2")])
    assert names == ["t/a#2", "t/a", "t/a#3", "t/b", "t/a#4", "t/a#2#2"]


def test_sessions_are_closed_and_environments_too() -> None:
    closed: list[int] = []

    class Counted(Breaking):
        async def close(self) -> None:
            closed.append(1)

    engine = ScriptedEngine(lambda session, prompt: encode(ANSWER))
    for where in ("reset", "step", "verify", "nowhere"):
        play([ANSWER], Counted(where, OSError("gone")), engine=engine)
    assert len(closed) == 4
    engine.open("00000000")  # would raise if an episode had left it open
    with pytest.raises(ExceptionGroup):
        play([ANSWER], Counted("nowhere"), engine=ScriptedEngine(lambda session, prompt: [1 // 0]))
    assert len(closed) == 5, "after a bug, too"


def test_an_environment_that_returns_nothing_is_ungraded() -> None:
    class Forgetful(Capitals):
        async def step(self, action: Action) -> Step:
            return None

    trajectory = play([LOOKUP], Forgetful())
    assert trajectory.outcome == Outcome.INFRASTRUCTURE_STEP
    assert "NoneType instead of Step" in trajectory.problem


def test_a_hung_tool_is_the_agents_failure_and_its_neighbours_go_on() -> None:
    over, returned = threading.Event(), []

    class Hung(Capitals):
        async def reset(self, task: Task, seed: int) -> Observation:
            self.tool_deadline = 0.3 if task.id == "France" else 60.0
            return await super().reset(task, seed)

        @tool
        def lookup(self, country: str) -> str:
            """Look a country up."""
            if country == "France":
                over.wait(60)
                returned.append(country)
            return "Rome"

    environment = Hung()

    def policy(session: str, prompt: list[int]) -> list[int]:
        text = decode(prompt)
        land = "France" if "France" in text else "Italy"
        return encode("<answer>Rome</answer>" if "Rome" in text else f"<lookup>{land}</lookup>")

    runner = rolling(environment, policy, LIMITS, seats=40)
    groups = asyncio.run(runner.collect(environment.tasks("train"), 20, 0, "test"))
    assert not returned
    over.set()
    outcomes = [{member.outcome for member in group.trajectories} for group in groups]
    assert outcomes == [{Outcome.AGENT_RESOURCE_LIMIT}, {Outcome.SUCCESS}]


def test_global_random_state_is_neither_read_nor_changed() -> None:
    """Promise 11."""
    trajectories, states = [], []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)
        before = (random.getstate(), np.random.get_state()[1].tolist())
        trajectories.append(play([LOOKUP, ANSWER]))
        states.append(before == (random.getstate(), np.random.get_state()[1].tolist()))
    assert states == [True, True]
    assert trajectories[0].seed == trajectories[1].seed

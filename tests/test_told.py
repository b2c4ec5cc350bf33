"""What the policy read is what is told: every text that it was shown, its first message included,
stands in each form in which an episode leaves the rollout."""

import asyncio
import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rollout.playing import TOKENIZER, encode, rolling
from turnwise.commands.words import words_text
from turnwise.config import RolloutConfig, check_recipe
from turnwise.environments.base import Environment
from turnwise.rollout.runner import RolloutRunner, new_member
from turnwise.storage.messages import messages_of
from turnwise.storage.trajectory_rows import groups_of, trajectory_row
from turnwise.tokens import Source
from turnwise.tools.tool import tool
from turnwise.types import Action, Observation, Step, Task, Trajectory, Verdict

RECIPE = check_recipe({"name": "x", "environment": {"name": "search"}}, "test")
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=12)
Row = Mapping[str, Any]


class Room(Environment):
    """Says a text at its reset, one for each look, and one more of its own where it `adds`."""

    stateless = True

    def __init__(self, first: str, looks: Sequence[str], adds: str) -> None:
        self.first, self.looks, self.adds = first, looks, adds

    async def reset(self, task: Task, seed: int) -> Observation:
        return Observation(self.first, Source.USER)

    @tool
    def look(self, number: int) -> str:
        """Look around."""
        return self.looks[number]

    async def step(self, action: Action) -> Step:
        step = await super().step(action)
        if not self.adds or step.observation is None:
            return step
        said = f"{step.observation.content}\n{self.adds}"
        return replace(step, observation=Observation(said))

    async def verify(self, trajectory: Trajectory) -> Verdict:
        return Verdict(1.0, True)


def runner(environment: Room) -> tuple[RolloutRunner, list[str]]:
    """A policy that looks as often as there is something to see, and the prompts that it reads."""
    read: list[str] = []

    def policy(session: str, prompt: list[int]) -> list[int]:
        read.append(TOKENIZER.decode(prompt))
        turn = len(read) - 1
        look = f'<look> {{"number": {turn}}}</look>'
        said = look if turn < len(environment.looks) else "<answer> done</answer>"
        return encode(said)

    limits = RolloutConfig(max_turns=6, max_turn_tokens=60, max_tokens=2000)
    return rolling(environment, policy, limits, snapshots=True), read


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value:
            yield from leaves(one)
    elif value is not None:
        yield str(value)


EXITS: dict[str, Callable[[Trajectory, Row], Any]] = {
    "states": lambda played, row: played.states,
    "conversations": lambda played, row: messages_of(row, TOKENIZER.decode),
    "notebook": lambda played, row: html.unescape(played._repr_html_()),
    "read again": lambda played, row: groups_of([row])[0].trajectories[0].states,
    "terminal": lambda played, row: words_text(row, dict.fromkeys(Source, "")).plain,
}


if find_spec("turnwise_view") is not None:
    from turnwise_view.dashboard.episodes import turns_of
    from turnwise_view.dashboard.export import _article

    EXITS["dashboard"] = lambda played, row: [row["prompt"], turns_of(row)]
    EXITS["page"] = lambda played, row: html.unescape(_article("step-000001", 0, row))
if find_spec("turnwise_judges") is not None:
    from turnwise_judges.prompt import record_of

    EXITS["judges"] = lambda played, row: record_of(played, 100_000)
if find_spec("turnwise_studies") is not None:
    from turnwise_studies.formats import atif_export, inspect_export

    EXITS["ATIF"] = lambda played, row: atif_export.trajectory_of(
        row, "x", RECIPE, TOKENIZER.decode
    )
    if find_spec("inspect_ai") is not None:
        EXITS["Inspect"] = lambda played, row: [m.content for m in inspect_export._messages(row)]


@settings(max_examples=12)
@given(first=TEXTS, looks=st.lists(TEXTS, max_size=3), adds=st.sampled_from(["", "It is dark."]))
def test_what_the_policy_read_is_what_is_told(first: str, looks: list[str], adds: str) -> None:
    environment = Room(f"({first})", [f"({text})" for text in looks], adds)
    made, read = runner(environment)
    task = Task("22", "Room 22")
    played = asyncio.run(made.episode(0, new_member(task, "g", 0, 0, "test")).run())
    row = {
        name: getattr(v, "tolist", lambda v=v: v)() for name, v in trajectory_row(played).items()
    }
    told = {form: "\n".join(leaves(tell(played, row))) for form, tell in EXITS.items()}
    for text in (environment.first, *environment.looks, *([adds] if looks else [])):
        assert text in read[-1]
        assert [form for form in EXITS if text not in told[form]] == []
    assert row["task_prompt"] == task.prompt == groups_of([row])[0].trajectories[0].task.prompt


@pytest.mark.wing("algorithms")
def test_a_branch_was_shown_what_its_parent_was() -> None:
    """Its own reset, with another seed, may have said something else."""
    from turnwise_algorithms.branching import branch_at, child_of

    environment = Room("It is cold.", ["It is dark."], "")
    made, _ = runner(environment)
    parent = asyncio.run(made.episode(0, new_member(Task("22", ""), "g", 0, 0, "test")).run())
    environment.first = "It is warm."
    start = child_of(parent, 1, 1, 0, "test"), branch_at(parent, 1)
    (child,) = asyncio.run(made.play([start]))
    assert child.states == parent.states == ("It is cold.", "It is dark.")


def test_an_episode_that_failed_before_it_began_tells_its_task() -> None:
    assert Trajectory(Task("22", "Room 22"), "g", 0, 0).prompt == "Room 22"

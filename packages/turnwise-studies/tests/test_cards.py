"""The cards of the study react: how they refer to each other, and what the oracle thinks."""

import asyncio

import pytest

from turnwise.types import Action, Step, Task, ToolCall, Trajectory, Turn, Verdict
from turnwise_studies.shipped.react import CHAINS, LINKS, NAMES, READS, Cards


def play(made: Cards, task: Task, actions: list[Action]) -> tuple[list[Step], Verdict]:
    """The steps of an episode, and the verdict on its last action."""

    async def work() -> tuple[list[Step], Verdict]:
        assert (await made.reset(task.public(), 0)).content == task.secret["way"][0]
        steps = [await made.step(action) for action in actions]
        ended = Trajectory(task, "test", 0, 0, turns=(Turn(actions[-1], steps[-1]),))
        return steps, await made.verify(ended)

    return asyncio.run(work())


@pytest.fixture(scope="module")
def cards() -> Cards:
    return Cards(count=30)


def test_a_thought_follows_the_pairs_of_a_card_to_the_next_one(cards: Cards) -> None:
    for task in cards.tasks("heldout"):
        actions = list(cards.oracle(task))
        steps, verdict = play(cards.fresh(), task, actions)
        assert verdict.success
        assert READS[len(steps) - 3] == task.info["cards"]
        for step, before, after in zip(steps[:-2], actions[:-2], actions[1:-1], strict=True):
            pairs = dict(pair.split(" ") for pair in step.results[0].content.split(", "))
            assert len(pairs) == CHAINS * LINKS
            chain = [before.calls[0].arguments["card"]]
            while chain[-1] in pairs:
                chain.append(pairs[chain[-1]])
            assert after.thought == " ".join(chain)
            assert after.calls[0].arguments["card"] == chain[-1]


def test_every_card_can_be_read_and_no_other_name(cards: Cards) -> None:
    task = cards.tasks("train")[0]
    read = [Action("", calls=(ToolCall("read", {"card": name}),)) for name in (*NAMES, "nothing")]
    steps, verdict = play(cards.fresh(), task, [*read, Action("", answer="none")])
    assert [step.results[0].ok for step in steps[:-1]] == [True] * len(NAMES) + [False]
    assert not verdict.success


def test_the_splits_have_no_box_in_common(cards: Cards) -> None:
    boxes = [{task.data["box"] for task in cards.tasks(split)} for split in ("train", "heldout")]
    assert len(boxes[0]) == len(boxes[1]) == 30
    assert not boxes[0] & boxes[1]


def test_without_the_tool_all_thoughts_come_before_the_answer(cards: Cards) -> None:
    blind = Cards(readable=False, count=30)
    assert blind.tools() == []
    for task in blind.tasks("train"):
        (action,) = blind.oracle(task)
        thoughts = [one.thought for one in cards.oracle(task)[1:-1]]
        assert action == Action("", ", ".join(thoughts), answer=task.secret["answer"])

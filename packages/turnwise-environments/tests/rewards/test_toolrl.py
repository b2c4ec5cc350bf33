"""ToolRL's reward as parts: every granularity against the published formulas, on the paper's own
records and altered copies of them, and the changes of weight over the steps."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rewards.episodes import episode
from turnwise.config import RewardConfig
from turnwise.rewards.composition import make_reward
from turnwise.rewards.measuring import PartError
from turnwise.types import Action, ToolCall, Trajectory, Turn
from turnwise_environments.rewards.toolrl import (
    calls_of,
    read_calls,
    toolrl_calls,
    toolrl_correctness,
    toolrl_form,
    write_calls,
)

TOOLRL = Path(__file__).parents[5] / "shared" / "data" / "toolrl" / "rlla_sft.json"
EXPECTED = [ToolCall("a", {"x": 1, "y": 2}), ToolCall("b", {"z": 3})]


def jaccard(first: list[str], second: list[str]) -> float:
    if first == second:
        return 1.0
    if not first or not second:
        return 0.0
    common = sum((Counter(first) & Counter(second)).values())
    return common / (len(first) + len(second) - common)


def published(gold: list[Any], given: list[Any], granularity: str) -> float:
    """The paper's formulas, with JSON's own values, in -3 to 3."""
    if gold == given:
        return 3.0
    if granularity == "coarse":
        return -3.0
    score = jaccard([one["name"] for one in gold], [one["name"] for one in given])
    highest, used = 1.0, set()
    for one in gold:
        wanted = one["parameters"]
        highest += 1.0 if granularity == "intermediate" else 1.0 + len(wanted)
        best, at = 0.0, None
        for place, other in enumerate(given):
            if place in used or other["name"] != one["name"]:
                continue
            found = other["parameters"]
            if granularity == "intermediate":
                points = float(one == other)
            else:
                points = jaccard(list(wanted), list(found))
                points += sum(key in found and found[key] == wanted[key] for key in wanted)
            if points > best:
                best, at = points, place
        if at is not None:
            used.add(at)
            score += best
    return 6 * score / highest - 3


def altered(calls: list[Any], stream: random.Random) -> Iterator[list[Any]]:
    """A call dropped, doubled, renamed; a parameter dropped, renamed, changed; another order."""
    place = stream.randrange(len(calls))
    one, others = calls[place], [*calls[:place], *calls[place + 1 :]]
    yield calls
    yield others
    yield [*calls, one]
    yield calls[::-1]
    yield [{**one, "name": "another"}, *others]
    for key in one["parameters"]:
        rest = {name: found for name, found in one["parameters"].items() if name != key}
        yield [*others, {**one, "parameters": rest}]
        yield [*others, {**one, "parameters": {**rest, "another": one["parameters"][key]}}]
        yield [*others, {**one, "parameters": {**rest, key: "another value"}}]


@pytest.mark.skipif(not TOOLRL.is_file(), reason="ToolRL's records are not here")
@pytest.mark.parametrize("granularity", ["fine", "intermediate", "coarse"])
def test_it_is_the_published_formula_on_every_record(granularity: Any) -> None:
    stream, compared = random.Random(0), 0
    for record in json.loads(TOOLRL.read_text()):
        _, mark, rest = record["output"].rpartition("</think>")[2].partition("<tool_call>")
        if not mark:
            continue
        gold = [json.loads(line) for line in rest.partition("</tool_call>")[0].split("\n") if line]
        for given in altered(gold, stream):
            one, other = (
                [ToolCall(call["name"], call["parameters"]) for call in calls]
                for calls in (gold, given)
            )
            found = toolrl_correctness(one, other, granularity)
            assert found == pytest.approx(published(gold, given, granularity), abs=1e-9)
            compared += 1
    assert compared > 3000


GRANULARITIES = {
    "fine": (6 * (1 / 2 + (1 / 3 + 1)) / (1 + 3 + 2) - 3, 6 * (1 + 2 + 1 + 1) / 6 - 3),
    "intermediate": (6 * (1 / 2) / 3 - 3, 6 * (1 + 1) / 3 - 3),
    "coarse": (-3.0, -3.0),
    "parameters": (6 * (1 / 2 + 1 / 3) / 3 - 3, 3.0),
    "names": (6 * (1 / 2) - 3, 3.0),
}


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_granularities_by_hand(granularity: Any) -> None:
    """One call of two with one right value and a wrong name of a parameter; both calls with one
    wrong value."""
    near = [ToolCall("a", {"x": 1, "w": 5})]
    values = [ToolCall("a", {"x": 1, "y": 9}), EXPECTED[1]]
    of_near, of_values = GRANULARITIES[granularity]
    assert toolrl_correctness(EXPECTED, near, granularity) == pytest.approx(of_near)
    assert toolrl_correctness(EXPECTED, values, granularity) == pytest.approx(of_values)
    assert toolrl_correctness(EXPECTED, EXPECTED, granularity) == 3.0
    assert toolrl_correctness(EXPECTED, None, granularity) == -3.0
    assert toolrl_correctness([], EXPECTED, granularity) == 0.0


def test_coarse_wants_the_order() -> None:
    assert toolrl_correctness(EXPECTED, EXPECTED[::-1], "coarse") == -3.0
    assert toolrl_correctness(EXPECTED, EXPECTED[::-1], "intermediate") == 3.0
    assert (
        toolrl_correctness([ToolCall("a", {"x": 1})], [ToolCall("a", {"x": True})], "coarse") == -3
    )


def calling(text: str) -> Turn:
    written = f"<think>so</think><tool_call>{text}</tool_call>"
    return Turn(Action(written, calls=(ToolCall("tool_call", {"calls": text}),)))


SECRETS: list[Any] = [
    write_calls(EXPECTED),
    [[write_calls(EXPECTED[:1])], [write_calls(EXPECTED[1:])]],
    (write_calls(EXPECTED),),
]


@pytest.mark.parametrize("calls", SECRETS)
def test_the_part_reads_expected_and_made_calls(calls: Any) -> None:
    one, other = (calling(write_calls([call])) for call in EXPECTED)
    secret = {"calls": calls}
    assert toolrl_calls(episode(one, other, secret=secret)) == 3.0
    assert toolrl_calls(episode(one, calling("x"), secret=secret), "coarse") == -3.0
    assert toolrl_calls(episode(secret=secret)) == -3.0
    assert calls_of(episode(one, other)) == EXPECTED == read_calls(SECRETS[0])


def test_where_nothing_is_expected_it_is_0_and_without_a_secret_no_number() -> None:
    assert toolrl_calls(episode(calling("x"), secret={"calls": ""})) == 0.0
    with pytest.raises(PartError, match="has no `calls`"):
        toolrl_calls(episode(calling("x")))


def test_form_is_that_of_every_turn() -> None:
    good, bad = calling("x"), Turn(Action("<tool_call>x</tool_call>"))
    said = Turn(Action("<think>a</think><answer>b</answer>", answer="b"))
    assert toolrl_form(episode(good, said)) == 1.0
    assert toolrl_form(episode(good, bad)) == toolrl_form(episode()) == 0.0


def rewards(member: Trajectory, steps: list[int], **parts: Any) -> list[float]:
    config = RewardConfig.model_validate({"parts": parts, "outcome": 0.0, "dominance": False})
    made = make_reward(config, {}, 8)
    return [asyncio.run(made.judge(member, made.weights(step))).reward for step in steps]


def test_dynamics_and_scale_are_the_recipes() -> None:
    """The paper's: R_format of -w to w with w from 2 to 1, R_correct from 2 to 3, in 150 steps, but
    for w that every reward is more; and three times the calls' weight after step 30."""
    member = episode(calling(write_calls(EXPECTED[:1])), secret={"calls": SECRETS[0]})
    correct = toolrl_correctness(EXPECTED, EXPECTED[:1])
    dynamic = {
        "toolrl_format": {"weight": 4, "schedule": {"weight": 2, "to_step": 150}},
        "toolrl_calls": {"weight": 2 / 3, "schedule": {"weight": 1, "to_step": 150}},
    }
    found = rewards(member, [0, 75, 150, 200], **dynamic)
    for reward, share in zip(found, (0, 0.5, 1, 1), strict=True):
        w_format, w_correct = 2 - share, 2 + share
        paper = w_format * (2 * toolrl_form(member) - 1) + w_correct * correct / 3
        assert reward == pytest.approx(paper + w_format)
    two_stage = {"weight": 1, "from_step": 30, "to_step": 30}
    stages = {"toolrl_calls": {"weight": 1 / 3, "schedule": two_stage}}
    assert rewards(member, [29, 30], **stages) == pytest.approx([correct / 3, correct])
    coarse = {"toolrl_calls": {"options": {"granularity": "coarse"}}}
    assert rewards(replace(member, turns=()), [0], **coarse) == [-3.0]

"""The estimate against a double loop over tasks in float64, and where its value is known."""

import math

import numpy as np
import pytest
import torch

from tests.fakes import byte_tokenizer, small_model
from tests.graded import graded
from turnwise.config import LearningConfig
from turnwise.learning.scoring import Score, scored_by
from turnwise.monitor.mutual_information import first_turns, from_scores, mutual_information
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Group, Task, Trajectory

TASKS = 4


def scored(model: torch.nn.Module, temperature: float = 1.0, budget: int = 512) -> Score:
    return scored_by(model, LearningConfig(tokens_per_micro_batch=budget), temperature)


def episode(prompt: list[int], turn: list[int], judged: bool = True) -> Trajectory:
    """A prompt, a first turn with a forced token inside, a tool's output, a second turn."""
    tokens = Tokens.empty().with_segments([Segment(prompt, Source.USER)], 0)
    tokens = tokens.with_sampled(turn[:2], [-1.0] * 2, version=0, turn=0)
    tokens = tokens.with_segments([Segment([7], Source.TEMPLATE)], 0)
    tokens = tokens.with_sampled(turn[2:], [-1.0] * len(turn[2:]), version=0, turn=0)
    tokens = tokens.with_segments([Segment([9, 9, 9], Source.TOOL)], 0)
    tokens = tokens.with_sampled([5, 6], [-1.0] * 2, version=0, turn=1)
    return graded(False if judged else None, tokens=tokens)


@pytest.fixture
def groups() -> list[Group]:
    generator = np.random.default_rng(3)

    def some(low: int, high: int) -> list[int]:
        return generator.integers(0, 200, generator.integers(low, high)).tolist()

    members = [[episode([*some(2, 9), 1], some(3, 8))] for _ in range(TASKS)]
    members[0].insert(0, episode(some(2, 9), some(3, 8), judged=False))
    return [Group(f"g{n}", tuple(own)) for n, own in enumerate(members)]


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    """Peaked, so that prompts matter."""
    made = small_model(byte_tokenizer())
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.mul_(8)
    return made.eval()


def log_probability(
    model: torch.nn.Module, prompt: list[int], member: Trajectory, temperature: float
) -> float:
    """Of the first turn's sampled tokens, one after the other, in float64."""
    tokens = member.tokens
    places = [i for i in range(len(tokens)) if tokens.mask[i] and tokens.turn[i] == 0]
    total, ids = 0.0, list(prompt)
    for place in range(places[0], places[-1] + 1):
        if place in places:
            logits = model(torch.tensor([ids])).logits[0, -1].double() / temperature
            total += float(torch.log_softmax(logits, -1)[tokens.ids[place]])
        ids.append(int(tokens.ids[place]))
    return total


@pytest.mark.long
@pytest.mark.parametrize("budget", [64, 10_000])
def test_it_is_the_double_loop(model: torch.nn.Module, groups: list[Group], budget: int) -> None:
    members = [group.graded[0] for group in groups]
    prompts = [m.tokens.ids[: np.argmax(m.tokens.mask)].tolist() for m in members]
    information, entropy = 0.0, 0.0
    with torch.no_grad():
        for i, member in enumerate(members):
            row = [log_probability(model, prompt, member, 0.7) for prompt in prompts]
            information += row[i] - math.log(sum(math.exp(score) for score in row) / TASKS)
            entropy -= row[i]
    found = mutual_information(scored(model, 0.7, budget), groups, 99)
    assert found["monitor/mutual_information"] == pytest.approx(information / TASKS, rel=1e-4)
    assert found["monitor/reasoning_entropy"] == pytest.approx(entropy / TASKS, rel=1e-4)
    assert abs(found["monitor/mutual_information"]) > 0.01
    again = mutual_information(scored(model, 0.7, budget), groups[::-1], 99)
    assert again == pytest.approx(found, rel=1e-5)


def test_a_policy_that_ignores_the_prompt_has_none(groups: list[Group]) -> None:
    """Without attention a token depends on the one before it alone; all prompts end alike."""
    model = small_model(byte_tokenizer()).eval()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
    found = mutual_information(scored(model), groups, 99)
    assert found["monitor/mutual_information"] == pytest.approx(0.0, abs=1e-5)
    assert found["monitor/reasoning_entropy"] > 1.0


def test_a_policy_whose_reasoning_gives_the_task_away_has_all_there_is() -> None:
    scores = np.full((5, 5), -1e6)
    np.fill_diagonal(scores, -2.0)
    assert from_scores(scores) == pytest.approx((math.log(5), 2.0))
    assert from_scores(np.full((5, 5), -3.0)) == pytest.approx((0.0, 3.0))


def test_a_sample_has_each_prompt_once(model: torch.nn.Module, groups: list[Group]) -> None:
    assert [len(turn.ids) for turn in first_turns([groups[1], groups[1], groups[2]])] == [
        len(turn.ids) for turn in first_turns(groups[1:3])
    ]
    assert len(first_turns(groups)) == TASKS
    assert mutual_information(scored(model), [groups[1], groups[1]], 99) == {}
    assert mutual_information(scored(model), groups, 1) == {}
    silent = Group("s", (Trajectory(Task("t", "?"), "s", 0, 0),))
    assert first_turns([silent]) == []
    two = mutual_information(scored(model), groups, 2)
    assert two["monitor/mutual_information"] <= math.log(2) + 1e-6

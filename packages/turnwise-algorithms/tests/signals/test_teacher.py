"""The teacher: its log-probabilities in float64, and that a policy comes to do what it does."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from tests.learning.building import with_one
from turnwise.algorithms import make_algorithm
from turnwise.config import LearningConfig, Recipe, check_recipe
from turnwise.errors import ConfigError
from turnwise.learning.credits import estimate
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.signals.base import Signals
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Group, Outcome, Task, Trajectory, Verdict
from turnwise_algorithms.signals.teacher import Teacher, check_vocabulary

DISTILLATION = make_algorithm("distillation", {})
PROMPT = [3, 7]


@pytest.mark.long
@pytest.mark.parametrize("budget", [64, 100_000])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_it_scores_what_was_sampled(
    load_model: Any, make_groups: Any, budget: int, temperature: float
) -> None:
    groups = make_groups([[1.0, None, 0.0], [0.3]])
    config = LearningConfig(tokens_per_micro_batch=budget)
    signals = Teacher(load_model("llama"), config, temperature).measure(groups)
    model, gaps = load_model("llama").double(), []
    for member in (m for group in groups for m in group.graded):
        ids = torch.tensor(member.tokens.ids)
        with torch.no_grad():
            logits = model(ids[None]).logits[0] / (temperature or 1.0)
        logprobs = torch.log_softmax(logits, -1)
        found = signals.of(member).teacher_logprobs
        for t in range(len(ids)):
            if member.tokens.source[t] != Source.MODEL:
                assert np.isnan(found[t])
                continue
            expected = logprobs[t - 1, ids[t]].item()
            assert found[t] == pytest.approx(expected, abs=1e-4)
            gaps.append(member.tokens.logprob[t] - expected)
    assert signals.metrics == {"teacher/reverse_kl": pytest.approx(np.mean(gaps), abs=1e-4)}
    assert signals.of(groups[0].trajectories[1]).teacher_logprobs is None


def test_nothing_sampled_is_nothing_to_say(load_model: Any, make_groups: Any) -> None:
    groups = make_groups([[1.0, None]])
    inherited = np.full(len(groups[0].trajectories[0].tokens), Source.INHERITED, np.uint8)
    groups = with_one(groups, 0, 0, source=inherited)
    assert Teacher(load_model(), LearningConfig(), 1.0).measure(groups).metrics == {}
    assert Teacher(load_model(), LearningConfig(), 1.0).measure([]) == Signals()


def next_logprobs(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0, -1].double(), -1)


def sampled_groups(model: Any, generator: np.random.Generator, count: int) -> list[Group]:
    """One token after the prompt, drawn from the model; one group for each."""
    logprobs = next_logprobs(model, PROMPT).numpy()
    groups = []
    for index in range(count):
        token = int(generator.choice(len(logprobs), p=np.exp(logprobs) / np.exp(logprobs).sum()))
        tokens = Tokens.empty()
        tokens = tokens.with_segments([Segment(PROMPT, Source.USER)], 0)
        tokens = tokens.with_sampled([token], [logprobs[token]], version=0, turn=0)
        member = Trajectory(
            Task("t", "q"),
            str(index),
            0,
            0,
            tokens,
            outcome=Outcome.FAILURE,
            verdict=Verdict(0.0, False),
        )
        groups.append(Group(str(index), (member,)))
    return groups


@pytest.mark.long
def test_a_policy_comes_to_do_what_its_teacher_does(load_model: Any) -> None:
    """On its own samples, without any reward; the teacher stays as it is."""
    policy, model = load_model(), load_model("llama")
    teacher = Teacher(model, LearningConfig(), 1.0)
    before = copy.deepcopy(model.state_dict())
    learner = PolicyLearner(policy, None, LearningConfig(learning_rate=1e-2), DISTILLATION)
    generator = np.random.default_rng(0)
    divergences = []
    for _ in range(30):
        own, theirs = next_logprobs(policy, PROMPT), next_logprobs(model, PROMPT)
        divergences.append((own.exp() * (own - theirs)).sum().item())
        groups = sampled_groups(policy, generator, 64)
        credits = estimate(groups, teacher.measure(groups), DISTILLATION)
        assert learner.update(groups, credits).problems == []
    assert divergences[0] > 0.5
    assert divergences[-1] < 0.2 * divergences[0]
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def recipe(**sections: Any) -> Recipe:
    return check_recipe({"name": "x", "environment": {"name": "search"}, **sections}, "test")


def test_a_teacher_that_reads_other_tokens_is_refused(
    model_folders: dict[str, Path], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    check_vocabulary(recipe(), tokenizer)
    for name in ("same", "other"):
        tokenizer.save_pretrained(tmp_path / name)
        config = (model_folders["llama"] / "config.json").read_text()
        (tmp_path / name / "config.json").write_text(config)
    check_vocabulary(recipe(algorithm={"teacher": {"model": str(tmp_path / "same")}}), tokenizer)
    tokenizer_file = tmp_path / "other" / "tokenizer.json"
    tokenizer_file.write_text(tokenizer_file.read_text().replace('"w7"', '"seven"'))
    other = {"teacher": {"model": str(tmp_path / "other")}}
    with pytest.raises(ConfigError, match="another vocabulary"):
        check_vocabulary(recipe(algorithm=other), tokenizer)

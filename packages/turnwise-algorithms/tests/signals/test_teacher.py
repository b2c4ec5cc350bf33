"""Teachers: log-probabilities in float64, each episode's under the teacher of its environment, and
the gradient of the loss that they make."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.learning.building import (
    changed,
    descend_plainly,
    each,
    learner,
    load_model,
    make_groups,
    members_of,
    weights,
    with_one,
    word_tokenizer,
)
from turnwise.algorithms import make_algorithm
from turnwise.config import Recipe, check_recipe
from turnwise.errors import ConfigError
from turnwise.learning.credits import estimate
from turnwise.learning.signals.base import Signals
from turnwise.tokens import Source
from turnwise.types import Group, Task
from turnwise_algorithms.signals.teacher import Teachers, check_vocabulary

DISTILLATION = make_algorithm("distillation", {})


def recipe(**sections: Any) -> Recipe:
    return check_recipe({"name": "x", "environment": {"name": "search"}, **sections}, "test")


def taught(model: str | dict[str, str]) -> Recipe:
    return recipe(algorithm={"teacher": {"model": model}})


@pytest.mark.long
@pytest.mark.parametrize("budget", [64, 100_000])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_it_scores_what_was_sampled(budget: int, temperature: float) -> None:
    groups = make_groups([[1.0, None, 0.0], [0.3]])
    sections = {
        "learning": {"tokens_per_micro_batch": budget},
        "rollout": {"temperature": temperature},
        "algorithm": {"teacher": {"model": "one"}},
    }
    signals = Teachers(recipe(**sections), {"one": load_model("llama")}).measure(groups)
    model, gaps = load_model("llama").double(), []
    for member in members_of(groups):
        ids = torch.tensor(member.tokens.ids)
        with torch.no_grad():
            logits = model(ids[None]).logits[0] / temperature
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


def test_nothing_sampled_is_nothing_to_say() -> None:
    groups = make_groups([[1.0, None]])
    inherited = np.full(len(groups[0].trajectories[0].tokens), Source.INHERITED, np.uint8)
    groups = with_one(groups, 0, 0, source=inherited)
    teachers = Teachers(taught("one"), {"one": load_model()})
    assert teachers.measure(groups).metrics == {}
    assert teachers.measure([]) == Signals()


TEACHERS = {"sums": "llama", "desk": "gemma2"}


def of_environments(names: Sequence[str]) -> list[Group]:
    """A group for each name, of which its tasks are."""
    groups = make_groups([[1.0, 0.0, None]] * len(names))
    return [
        each([group], lambda own, name=name: changed(own, task=labelled(own.task, name)))[0]
        for group, name in zip(groups, names, strict=True)
    ]


def labelled(task: Task, name: str) -> Task:
    return replace(task, info={"environment": name})


def test_the_loss_is_of_each_environments_own_teacher() -> None:
    """By its gradient, against -sum (log teacher - log sampler) log policy / tokens of one text at
    a time. Episodes of the third environment have no teacher: theirs is 0, and they count in the
    mean."""
    groups = of_environments(["sums", "desk", "shell"])
    models = {name: load_model(name) for name in TEACHERS.values()}
    signals = Teachers(taught(TEACHERS), models).measure(groups)
    trained = descend_plainly(learner(DISTILLATION))
    before, policy = weights(trained.model), load_model()
    losses, gaps, count = [], {name: [] for name in ("sums", "desk")}, 0
    for member in members_of(groups):
        tokens, environment = member.tokens, member.task.info["environment"]
        ids, places = torch.tensor(tokens.ids), np.flatnonzero(tokens.mask)
        count += len(places)
        if environment not in TEACHERS:
            assert np.isnan(signals.of(member).teacher_logprobs).all()
            continue
        wanted = ids[places]
        with torch.no_grad():
            logits = models[TEACHERS[environment]](ids[None]).logits[0, places - 1]
        theirs = torch.log_softmax(logits.double(), -1)[range(len(places)), wanted]
        own = torch.log_softmax(policy(ids[None]).logits[0, places - 1].double(), -1)
        sampled = torch.tensor(tokens.logprob[places]).double()
        # The objective is -ratio A, whose gradient has the ratio to the sampler as a weight.
        ratio = (own[range(len(places)), wanted] - sampled).exp()
        losses.append(-(ratio * (theirs - sampled)).sum())
        gaps[environment] += (sampled - theirs).tolist()
    (sum(losses) / count).backward()
    gradient = torch.cat([p.grad.double().flatten() for p in policy.parameters()])
    trained.update(groups, estimate(groups, signals, DISTILLATION))
    assert torch.allclose(before - weights(trained.model), gradient, atol=1e-5)
    assert signals.metrics == {
        "teacher/reverse_kl": pytest.approx(np.mean(gaps["sums"] + gaps["desk"]), abs=1e-4),
        **{
            f"teacher/{name}/reverse_kl": pytest.approx(np.mean(own), abs=1e-4)
            for name, own in gaps.items()
        },
    }


def test_a_teacher_that_reads_other_tokens_is_refused(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    check_vocabulary(recipe(), tokenizer)
    for name in ("same", "other"):
        tokenizer.save_pretrained(tmp_path / name)
        load_model("llama").config.save_pretrained(tmp_path / name)
    check_vocabulary(taught(str(tmp_path / "same")), tokenizer)
    tokenizer_file = tmp_path / "other" / "tokenizer.json"
    tokenizer_file.write_text(tokenizer_file.read_text().replace('"w7"', '"seven"'))
    both = {"sums": str(tmp_path / "same"), "desk": str(tmp_path / "other")}
    with pytest.raises(ConfigError, match="other, which has another vocabulary"):
        check_vocabulary(taught(both), tokenizer)

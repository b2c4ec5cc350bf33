"""The teacher: its log-probabilities in float64, and that a policy comes to do what it does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.learning.building import (
    load_model,
    make_groups,
    members_of,
    with_one,
    word_tokenizer,
)
from turnwise.algorithms import make_algorithm
from turnwise.config import LearningConfig, Recipe, check_recipe
from turnwise.errors import ConfigError
from turnwise.learning.signals.base import Signals
from turnwise.tokens import Source
from turnwise_algorithms.signals.teacher import Teacher, check_vocabulary

DISTILLATION = make_algorithm("distillation", {})
PROMPT = [3, 7]


@pytest.mark.long
@pytest.mark.parametrize("budget", [64, 100_000])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_it_scores_what_was_sampled(budget: int, temperature: float) -> None:
    groups = make_groups([[1.0, None, 0.0], [0.3]])
    config = LearningConfig(tokens_per_micro_batch=budget)
    signals = Teacher(load_model("llama"), config, temperature).measure(groups)
    model, gaps = load_model("llama").double(), []
    for member in members_of(groups):
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


def test_nothing_sampled_is_nothing_to_say() -> None:
    groups = make_groups([[1.0, None]])
    inherited = np.full(len(groups[0].trajectories[0].tokens), Source.INHERITED, np.uint8)
    groups = with_one(groups, 0, 0, source=inherited)
    assert Teacher(load_model(), LearningConfig(), 1.0).measure(groups).metrics == {}
    assert Teacher(load_model(), LearningConfig(), 1.0).measure([]) == Signals()


def recipe(**sections: Any) -> Recipe:
    return check_recipe({"name": "x", "environment": {"name": "search"}, **sections}, "test")


def test_a_teacher_that_reads_other_tokens_is_refused(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    check_vocabulary(recipe(), tokenizer)
    for name in ("same", "other"):
        tokenizer.save_pretrained(tmp_path / name)
        load_model("llama").config.save_pretrained(tmp_path / name)
    check_vocabulary(recipe(algorithm={"teacher": {"model": str(tmp_path / "same")}}), tokenizer)
    tokenizer_file = tmp_path / "other" / "tokenizer.json"
    tokenizer_file.write_text(tokenizer_file.read_text().replace('"w7"', '"seven"'))
    other = {"teacher": {"model": str(tmp_path / "other")}}
    with pytest.raises(ConfigError, match="another vocabulary"):
        check_vocabulary(recipe(algorithm=other), tokenizer)

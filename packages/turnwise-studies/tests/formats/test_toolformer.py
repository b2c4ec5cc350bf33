"""Toolformer's filter: the loss of what follows, after calls with their results and without."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from tests.fakes import Capitals, byte_tokenizer, small_model
from turnwise.config import LearningConfig, ScaffoldConfig
from turnwise.scaffolds.registry import make_scaffold
from turnwise_studies.formats.toolformer import gains

TOKENIZER = byte_tokenizer()
SCAFFOLD = make_scaffold(
    ScaffoldConfig(options={"instructions": ""}), TOKENIZER, Capitals().tools()
)
ASKED = {"role": "user", "content": "Capital of France?"}
CALL = {"id": "a", "function": {"name": "lookup", "arguments": json.dumps({"country": "France"})}}
CALLED = {"role": "assistant", "content": "look", "tool_calls": [CALL]}
SHOWN = {"role": "tool", "tool_call_id": "a", "content": "The capital is Paris."}
TOLD = {"role": "assistant", "content": "Paris", "reasoning_content": "so"}


def loss(model: Any, text: str, following: str) -> float:
    """L of what follows a text, by the formula and one pass."""
    ids, more = (TOKENIZER(one, add_special_tokens=False)["input_ids"] for one in (text, following))
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([ids + more])).logits[0], -1).numpy()
    weights = [max(0.0, 1 - 0.2 * place) for place in range(len(more))]
    found = [logprobs[len(ids) - 1 + place, token] for place, token in enumerate(more)]
    return float(-np.dot(weights, found) / sum(weights))


def test_the_gain_is_that_of_the_formula() -> None:
    model = small_model(TOKENIZER)
    prompt = "Capital of France?\n"
    call = "<think> look</think><lookup> France</lookup>"
    result, nothing = (f"<information> {one}</information>" for one in (SHOWN["content"], ""))
    answer = "<think> so</think><answer> "
    with_results, without_results, without_calls = (
        loss(model, before, "Paris</answer>")
        for before in (
            f"{prompt}{call}\n{result}\n{answer}",
            f"{prompt}{call}\n{nothing}\n{answer}",
            f"{prompt}{answer}",
        )
    )
    (gain,) = gains(model, SCAFFOLD, [[ASKED, CALLED, SHOWN, TOLD]], LearningConfig())
    expected = min(without_calls, without_results) - with_results
    assert gain == pytest.approx(expected, abs=1e-4)


def test_calls_without_results_gain_nothing() -> None:
    empty = {**SHOWN, "content": ""}
    both = [[ASKED, CALLED, shown, TOLD] for shown in (empty, SHOWN)]
    found = gains(small_model(TOKENIZER), SCAFFOLD, both, LearningConfig())
    assert found[0] <= 1e-6  # the result is what it is compared with
    assert len(found) == 2

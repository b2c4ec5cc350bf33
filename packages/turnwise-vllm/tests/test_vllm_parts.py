"""Requests and answers, the choice of a replica, and the comparison of log-probabilities."""

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch

from tests.fakes import byte_tokenizer, small_model
from turnwise.engines.base import Completion, Sampling, StopReason
from turnwise.engines.sampling import StopMatcher, TokenTexts
from turnwise.errors import ConfigError, InfrastructureError
from turnwise_vllm.completions import (
    Answer,
    Labels,
    WrongWeightsError,
    completion,
    read_answer,
    request_body,
)
from turnwise_vllm.parity import Probe, disagreement, make_probes, score
from turnwise_vllm.replica import Router


def answer(tokens: list[int], reason: str) -> Answer:
    count = len(tokens)
    return Answer(tokens, [-float(index) for index in range(count)], ["one"] * count, reason)


def completed(
    answered: Answer,
    sampling: Sampling,
    ends: frozenset[int] = frozenset(),
    versions: Sequence[int] = (),
) -> Completion:
    """An answer after two tokens as a completion; `ends` end the text."""
    matcher = StopMatcher(sampling.stop, TokenTexts(byte_tokenizer()))
    known = list(versions) or [0] * len(answered.tokens)
    return completion(answered, sampling, matcher, ends, known, 2)


def test_a_turn_ends_with_the_token_that_completes_a_stop_string() -> None:
    tokenizer = byte_tokenizer()
    tokens = tokenizer("abcdef")["input_ids"]
    sampling = Sampling(6, stop=("cd",))
    found = completed(answer(tokens, "stop"), sampling, versions=[4, 4, 4, 5, 5, 5])
    assert tokenizer.decode(found.tokens) == "abcd"
    assert list(found.logprobs) == [0.0, -1.0, -2.0, -3.0]
    assert (found.stop_reason, found.version) == (StopReason.STOP_STRING, [4, 4, 4, 5])


@pytest.mark.parametrize(
    ("tokens", "reason", "most", "expected", "count"),
    [
        ([5, 6, 9, 7], "stop", 8, StopReason.END_OF_TEXT, 3),
        ([5, 6, 7], "length", 3, StopReason.MAX_TOKENS, 3),
        ([5, 6, 7], "length", 8, StopReason.CONTEXT, 3),
        ([5, 6, 7], "stop", 8, StopReason.STOP_STRING, 3),
    ],
)
def test_reasons_to_stop(
    tokens: list[int], reason: str, most: int, expected: StopReason, count: int
) -> None:
    found = completed(answer(tokens, reason), Sampling(most), frozenset({9}))
    assert found.stop_reason == expected
    assert len(found.tokens) == len(found.logprobs) == count


def test_a_request_says_all_that_sampling_says() -> None:
    sampling = Sampling(
        9, temperature=0.7, top_k=5, top_p=0.8, min_p=0.0, stop=("</a>",), seed=2**64 - 1
    )
    whole = request_body("model", [1, 2], sampling, 4, {8, 3})
    assert (whole["model"], whole["token_ids"]) == ("model", [1, 2])
    body = whole["sampling_params"]
    assert body["max_tokens"] == 4
    assert body["routed_experts_prompt_start"] == 1  # no experts are asked for: one is the fewest
    assert (body["temperature"], body["top_k"], body["top_p"]) == (0.7, 5, 0.8)
    assert body["seed"] == 2**63 - 1
    assert (body["stop"], body["stop_token_ids"]) == (["</a>"], [3, 8])


WITH_EXPERTS = Sampling(8, experts_from=1)


def _with_experts(experts: np.ndarray | None) -> dict[str, Any]:
    """An answer of three tokens after a prompt of two."""
    file = BytesIO()
    if experts is not None:
        np.save(file, experts)
    content = [{"token_id": token, "logprob": -1.0} for token in (5, 9, 7)]
    return {
        "choices": [
            {
                "finish_reason": "stop",
                "token_ids": [5, 9, 7],
                "logprobs": {"content": content},
                "weight_versions": [{"version": "one", "start": 0, "end": 3}],
                "routed_experts": base64.b64encode(file.getvalue()).decode() or None,
            }
        ]
    }


def test_experts_are_those_of_the_tokens_that_are_kept() -> None:
    experts = np.arange(3 * 2 * 2, dtype=np.uint8).reshape(3, 2, 2)
    found = completed(read_answer(_with_experts(experts)), WITH_EXPERTS, frozenset({9}))
    assert list(found.tokens) == [5, 9]
    assert found.experts.tolist() == experts[:2].tolist()  # of the tokens 1 and 2 of four
    body = request_body("model", [1, 2], WITH_EXPERTS, 4, set())["sampling_params"]
    assert body["routed_experts_prompt_start"] == 1


@pytest.mark.parametrize("experts", [None, np.zeros((2, 2, 2), np.uint8)])
def test_a_server_that_returns_no_experts_is_named(experts: np.ndarray | None) -> None:
    with pytest.raises(ConfigError, match="start it with --enable-return-routed-experts"):
        completed(read_answer(_with_experts(experts)), WITH_EXPERTS)


def test_experts_are_read_where_they_are_asked_for_alone() -> None:
    answered = replace(read_answer(_with_experts(None)), experts="")
    assert completed(answered, Sampling(8)).experts is None
    with pytest.raises(InfrastructureError, match="routed experts cannot be read"):
        completed(answered, WITH_EXPERTS)


def test_a_label_is_a_version_and_none_is_older_than_one_before_it() -> None:
    labels = Labels()
    first, second = labels.add("000001-version-3", 3), labels.add("000002-version-2", 2)
    assert first != Labels().add("000001-version-3", 3)  # of another run
    assert labels.versions([first, first, second], 0, "there") == [3, 3, 2]  # rolled back
    with pytest.raises(WrongWeightsError, match=r"^vLLM at there sampled .* version 3 after .* 2$"):
        labels.versions([second, first], 0, "there")
    with pytest.raises(WrongWeightsError, match="version 3 after those of version 2"):
        labels.versions([first], labels.newest, "there")
    with pytest.raises(WrongWeightsError, match="'default', which it was not given"):
        labels.versions(["default"], 0, "there")


@dataclass
class Load:
    up: bool = True
    in_flight: int = 0


def test_a_session_goes_where_its_cache_is_else_where_least_is_done() -> None:
    replicas = [Load(in_flight=2), Load(in_flight=1), Load(in_flight=1)]
    router = Router(replicas)
    assert router.choose("a") is replicas[1]
    assert router.choose("b") is replicas[2]  # as many requests, but no session yet
    replicas[1].in_flight = 9
    assert router.choose("a") is replicas[1]
    replicas[1].up = False
    assert router.choose("a") is replicas[2]
    replicas[1] = Load()
    assert router.choose("a") is replicas[2]
    router.forget("a")
    router.forget("a")
    assert router.choose("a") is replicas[1]
    for replica in replicas:
        replica.up = False
    with pytest.raises(ValueError, match="empty"):
        router.choose("a")


def test_scores_are_those_of_a_forward_pass_in_float64() -> None:
    tokenizer = byte_tokenizer()
    model = small_model(tokenizer).train()
    probes = [
        replace(probe, tokens=[3, 1, 4], logprobs=[0.0] * 3) for probe in make_probes(tokenizer, 64)
    ]
    assert [len(probe.prompt) for probe in probes] == [8, 32, 48]
    assert not any(set(probe.prompt) & set(tokenizer.all_special_ids) for probe in probes)
    scored = score(model, probes)
    assert model.training
    double = small_model(tokenizer).double().eval()
    for probe, other in zip(probes, scored, strict=True):
        ids = torch.tensor([[*probe.prompt, 3, 1, 4]])
        with torch.no_grad():
            logits = double(ids).logits[0, -4:-1] / probe.sampling.temperature
        expected = logits.log_softmax(-1)[range(3), [3, 1, 4]]
        assert list(other.logprobs) == pytest.approx(expected.tolist(), abs=1e-5)


def test_what_is_compared_ends_at_the_first_other_token() -> None:
    sampling = Sampling(3)
    one = Probe([1], sampling, [5, 6, 7], [-1.0, -2.0, -3.0])
    assert disagreement([one], [replace(one, logprobs=[-1.5, -2.0, -2.0])]) == pytest.approx(0.5)
    other = replace(one, tokens=[5, 9, 7], logprobs=[-1.25, -9.0, -9.0])
    assert disagreement([one], [other]) == 0.25
    assert disagreement([one], [replace(one, tokens=[8, 6, 7])]) == math.inf

"""The scripted engine replays, cuts at the budget, and claims no log-probabilities."""

import asyncio
import math

import pytest

from turnwise.engines.base import Completion, Sampling, StopReason
from turnwise.engines.scripted import ScriptedEngine
from turnwise.errors import NotSupportedError


def play(engine: ScriptedEngine, prompt: list[int], budget: int) -> Completion:
    return asyncio.run(engine.generate(prompt, Sampling(max_tokens=budget), session="s"))


def echoing() -> ScriptedEngine:
    engine = ScriptedEngine(lambda session, prompt: [len(session), *prompt])
    engine.open("s")
    return engine


def test_it_says_what_the_policy_says_cut_at_the_budget_and_no_log_probabilities() -> None:
    whole, cut = (play(echoing(), [7, 8], budget) for budget in (3, 2))
    assert (list(whole.tokens), list(cut.tokens)) == ([1, 7, 8], [1, 7])
    reasons = StopReason.END_OF_TEXT, StopReason.MAX_TOKENS
    assert (whole.stop_reason, cut.stop_reason) == reasons
    assert whole.version == 0
    assert len(whole.logprobs) == 3
    assert all(math.isnan(value) for value in whole.logprobs)


def test_sessions_are_opened_once_and_closed_as_often_as_one_likes() -> None:
    engine = echoing()
    with pytest.raises(RuntimeError, match="open already"):
        engine.open("s")
    engine.close("s")
    engine.close("s")
    with pytest.raises(RuntimeError, match="not open"):
        play(engine, [1], 1)


def test_it_has_no_weights() -> None:
    with pytest.raises(NotSupportedError):
        asyncio.run(echoing().load_weights({}, 1))

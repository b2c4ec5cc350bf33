"""Toolformer's filter: tool calls that the model made, kept where their results help it to the
answer.

L(x) is the weighted loss of the right answer after x: the first token counts 1, each later one 0.2
less, weights summing to 1. Calls c with results r are kept if

    min(L(nothing), L(c without r)) - L(c, r) >= threshold

Source: Schick et al. 2023 (arXiv 2302.04761), section 2. Our definition: all calls of an episode
are judged together, where the paper has one call in a text.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

import numpy as np
from torch import nn

from turnwise.config import LearningConfig
from turnwise.learning.scoring import Sequenced, score
from turnwise.parts.conversations import Message, conversation_tokens
from turnwise.scaffolds.base import Scaffold
from turnwise.types import Action

DECAY = 0.2
"""Weight that a token loses with each one before it."""


def gains(
    model: nn.Module,
    scaffold: Scaffold,
    conversations: Sequence[Sequence[Message]],
    config: LearningConfig,
) -> list[float]:
    """Nats by which the calls of each conversation lower the loss of its answer. One begins with
    the user, has calls and results, and ends with the right answer. Raises DataError for a turn
    that the scaffold cannot write and read back."""
    variants = [
        _answer(variant, scaffold, f"conversation {number}")
        for number, messages in enumerate(conversations, 1)
        for variant in (messages, _without_results(messages), _without_calls(messages))
    ]
    logprobs = score(model, variants, config, temperature=1.0)
    losses = [_loss(found[wanted]) for found, (_, wanted) in zip(logprobs, variants, strict=True)]
    by_variant = zip(losses[::3], losses[1::3], losses[2::3], strict=True)
    return [min(nothing, calls) - results for results, calls, nothing in by_variant]


def _without_results(messages: Sequence[Message]) -> list[Message]:
    return [{**one, "content": ""} if one["role"] == "tool" else one for one in messages]


def _without_calls(messages: Sequence[Message]) -> list[Message]:
    return [*takewhile(lambda one: one["role"] != "assistant", messages), messages[-1]]


def _answer(messages: Sequence[Message], scaffold: Scaffold, place: str) -> Sequenced:
    """Ids, and which are the answer's: from the first token that differs from a turn without
    one."""
    last = messages[-1]
    action = Action("", str(last.get("reasoning_content") or ""), answer=str(last["content"]))
    written, empty = (
        scaffold.render(replace(action, answer=text)) for text in (last["content"], "")
    )
    pairs = zip([*written, -1], [*empty, -2], strict=False)
    same = next(place for place, (one, other) in enumerate(pairs) if one != other)
    ids = conversation_tokens(messages, scaffold, place).ids
    wanted = np.zeros(len(ids), bool)
    wanted[len(ids) - len(written) + same :] = True
    return ids, wanted


def _loss(logprobs: np.ndarray) -> float:
    weights = np.maximum(1 - DECAY * np.arange(len(logprobs)), 0)
    return float(-(weights * logprobs).sum() / weights.sum())

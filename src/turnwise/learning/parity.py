"""Do the engine and the learner say of tokens what the model itself says?

Before a run begins, its engine samples a few short turns of several histories: in one ragged batch,
past every boundary that the model's configuration names and the run's limits reach (of windows and
chunks, and where rotary positions switch), two turns in one session, and one more after its cache
is lost. Their log-probabilities, and the learner's of all histories in one padded batch, are
compared with the model's own forward pass over each history alone.

The fixed bound is for faults: wrong positions, boundaries, padding, caches. Rounding of a type is a
part of each number, so a model with large logits, as very certain ones have, may be beyond the
bound in bfloat16 without a fault. Where something computes in it, a few times the rounding of the
model's own pass over the same histories are allowed, to which a fault is not proportional.
"""

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import numpy as np
import torch
from torch import Tensor, nn

from turnwise.engines.base import Engine, Sampling
from turnwise.errors import NotSupportedError, RunStoppedError, first_line
from turnwise.forward.attention import evaluating
from turnwise.forward.equality import (
    FOREIGN_ERRORS,
    ROUNDINGS,
    distance,
    ordinary_tokens,
    own_logprobs,
    past_boundaries,
    rounding_to_bfloat16,
)
from turnwise.forward.hidden import base_model
from turnwise.forward.logprobs import token_logprobs
from turnwise.learning.batch import shifted

TURNS = 3
"""Turns of each history; before the last one the session is closed and opened again."""
SAMPLED = 4
"""Sampled tokens of a turn."""
OBSERVED = 8
"""Tokens of an observation, between two turns."""
BRIEF = 4
"""Tokens of the shortest prompt, which stays this side of most boundaries."""
ROOMY = 2 * TURNS * (SAMPLED + OBSERVED)
"""Shorter limits than that have turns and observations of one token."""


@dataclass
class Played:
    """A history as the engine sampled it."""

    name: str
    ids: list[int]
    observations: Sequence[Sequence[int]]
    """The observation after each of its turns but the last."""
    places: list[int] = field(default_factory=list)
    """The places of the sampled tokens."""
    logprobs: list[float] = field(default_factory=list)
    """The engine's log-probabilities of the sampled tokens."""


@dataclass(frozen=True)
class Parity:
    """How far log-probabilities of sampled tokens are from the model's own, in nats: the mean
    absolute difference over a history, of the worst history."""

    engine: float
    learner: float
    tokens: int
    """The number of tokens of the longest history."""


Checked = tuple[Parity, float]
"""A parity, and the bound that it is within."""


async def engine_parity(engine: Engine, model: nn.Module, longest: int) -> float:
    """The part of `check_parity` that is the engine's, for models that are not trained."""
    histories = await _play(engine, model, longest)
    return _furthest([torch.tensor(each.logprobs) for each in histories], _own(model, histories))


async def check_parity(
    engine: Engine,
    model: nn.Module,
    longest: int,
    bound: float,
    autocast: bool = False,
    rounded: bool = False,
    strict: bool = False,
) -> Checked:
    """The parity of an engine with the model's weights and no session, for histories of at most
    `longest` tokens, and the bound that it is within; `autocast` is the learner's. Raises
    NotSupportedError where it is within none, and where the model's own code fails.

    With `rounded` engine or learner computes in bfloat16, and ROUNDINGS times `measure_rounding`
    are allowed where that is more; not with `strict`, where the bound was chosen.
    """
    histories = await _play(engine, model, longest)
    found = _compare(model, histories, autocast)
    furthest = max(found.learner, found.engine)
    if furthest <= bound:
        return found, bound
    # Only now, as it takes two more passes over each history.
    rounding = measure_rounding(model, histories) if rounded else 0.0
    explained = furthest <= ROUNDINGS * rounding
    if explained and not strict:
        return found, ROUNDINGS * rounding
    over = f"over histories of up to {found.tokens} tokens"
    rule = f"and engine.parity_bound is {bound:.2g}"
    if rounded:
        rule += f"; rounding to bfloat16 moves the model's own by {rounding:.2g}"
    name = type(base_model(model)).__name__
    if explained:
        raise NotSupportedError(
            f"{name} is not within engine.parity_bound: {over}, log-probabilities of engine or "
            f"learner differ by {furthest:.2g} nats on average from the model's own, {rule}. It is "
            "rounding, which grows with logits. Compute in float32 (learning.compute_dtype=float32 "
            "model.dtype=float32), or raise engine.parity_bound, or leave it out"
        )
    if not found.learner <= max(bound, ROUNDINGS * rounding):
        raise NotSupportedError(
            f"{name} cannot be trained: {over}, what it says of a text depends on the longer texts "
            f"beside it, or on its later tokens; log-probabilities differ by {found.learner:.2g} "
            f"nats on average from those of each text alone, {rule}"
        )
    raise NotSupportedError(
        f"the engine does not sample from {name} as it is trained: {over}, log-probabilities "
        f"differ by {found.engine:.2g} nats on average from the model's own, {rule}. Choose "
        "another engine.name or model"
    )


def measure_rounding(model: nn.Module, histories: Sequence[Played]) -> float:
    """How far rounding to bfloat16 moves the model's own log-probabilities, in nats: the mean
    absolute difference over sampled tokens, or from the first on, if more; of the worst history."""
    device, found = base_model(model).device, []
    for each in histories:
        try:
            moved = rounding_to_bfloat16(partial(_own_tokens, model, each), device)
        except FOREIGN_ERRORS:  # then nothing is known of rounding, and nothing is allowed for it
            return 0.0
        found += [moved.mean(), moved[torch.tensor(each.places) - each.places[0]].mean()]
    return float(torch.stack(found).max())


def check_gap(gap: float, bound: float, step: int) -> None:
    """Raise RunStoppedError where a step's `policy/logprob_gap` is beyond the bound, or NaN."""
    if math.isnan(gap):
        raise RunStoppedError(
            f"policy/logprob_gap is not a number in step {step}: the learner or the engine gave "
            "tokens log-probabilities that are none, so nothing can be learned from them. Look "
            "for NaN in the weights of the last checkpoints, and lower learning_rate"
        )
    if gap > bound:
        raise RunStoppedError(
            f"policy/logprob_gap is {gap:.2g} in step {step}, and engine.parity_bound is "
            f"{bound:.2g}: the learner does not give tokens the log-probabilities that the engine "
            "sampled them with, so updates go astray. Compute in float32 "
            "(learning.compute_dtype=float32 model.dtype=float32), or choose another engine.name "
            "or model; a higher bound would train on wrong ratios"
        )


async def _play(engine: Engine, model: nn.Module, longest: int) -> list[Played]:
    base = base_model(model)
    long = past_boundaries(base, longest)
    observed, sampled = (OBSERVED, SAMPLED) if long >= ROOMY else (1, 1)
    first = long - TURNS * sampled - (TURNS - 1) * observed
    long_one, short_one = (ordinary_tokens(base, first, seed) for seed in range(2))
    short_one = short_one[: max(1, first // 2)]
    prompts = {
        "parity/long": long_one,
        "parity/short": short_one,
        "parity/beside": [*short_one, *ordinary_tokens(base, 1, 2)][-len(short_one) :],
        "parity/brief": ordinary_tokens(base, min(BRIEF, first), 3),
    }
    seeds = count(len(prompts))
    histories = []
    for name, prompt in prompts.items():
        seen = [ordinary_tokens(base, observed, next(seeds)) for _ in range(TURNS - 1)]
        histories.append(Played(name, prompt, seen))
    # In the last turn every session is new: its whole history is prefilled at once.
    for turns in (range(TURNS - 1), range(TURNS - 1, TURNS)):
        for each in histories:
            engine.open(each.name)
        try:
            await asyncio.gather(*(_turns(engine, each, turns, sampled) for each in histories))
        except FOREIGN_ERRORS as error:
            raise NotSupportedError(
                f"the engine cannot sample from {type(base).__name__}: {type(error).__name__}: "
                f"{first_line(error)}. Choose another engine.name or model"
            ) from error
        finally:
            for each in histories:
                engine.close(each.name)
    return histories


async def _turns(engine: Engine, history: Played, turns: Iterable[int], sampled: int) -> None:
    """Some turns of a history; then it closes its session, for which others wait in lockstep."""
    for turn in turns:
        if turn:
            history.ids += history.observations[turn - 1]
        await _turn(engine, history, Sampling(sampled, seed=turn))
    engine.close(history.name)


async def _turn(engine: Engine, history: Played, sampling: Sampling) -> None:
    completion = await engine.generate(history.ids, sampling, session=history.name)
    start = len(history.ids)
    history.ids += completion.tokens
    history.places += range(start, len(history.ids))
    history.logprobs += completion.logprobs


def _compare(model: nn.Module, histories: Sequence[Played], autocast: bool) -> Parity:
    try:
        own = _own(model, histories)
        learner = _learned(model, histories, autocast)
    except FOREIGN_ERRORS as error:
        raise NotSupportedError(
            f"{type(base_model(model)).__name__} cannot be trained as it is: it does not score "
            f"texts of different lengths side by side ({type(error).__name__}: {first_line(error)})"
        ) from error
    engine = [torch.tensor(each.logprobs) for each in histories]
    longest = max(len(each.ids) for each in histories)
    return Parity(_furthest(engine, own), _furthest(learner, own), longest)


def _furthest(found: Sequence[Tensor], own: Sequence[Tensor]) -> float:
    return max(distance(one, other) for one, other in zip(found, own, strict=True))


def _own(model: nn.Module, histories: Sequence[Played]) -> list[Tensor]:
    """float32[sampled] of each history, the model's own log-probabilities."""
    return [
        _own_tokens(model, each)[torch.tensor(each.places) - each.places[0]] for each in histories
    ]


def _own_tokens(model: nn.Module, history: Played) -> Tensor:
    """float32[tokens from the first sampled one on], the model's own log-probabilities."""
    first = history.places[0]
    every = own_logprobs(base_model(model), history.ids, len(history.ids) - first + 1)[:-1].cpu()
    return every.gather(1, torch.tensor(history.ids[first:])[:, None])[:, 0]


@torch.no_grad()
def _learned(model: nn.Module, histories: Sequence[Played], autocast: bool) -> list[Tensor]:
    """The learner's, of all histories in one batch."""
    base = base_model(model)
    inputs, selected = shifted(
        [(np.array(one.ids), np.isin(np.arange(len(one.ids)), one.places)) for one in histories]
    )
    targets = [each.ids[place] for each in histories for place in each.places]
    with evaluating(list(model.modules())):
        found, _ = token_logprobs(
            model,
            inputs.to(base.device),
            selected.to(base.device),
            torch.tensor(targets, device=base.device),
            1.0,
            autocast,
        )
    return list(torch.split(found.cpu(), [len(each.places) for each in histories]))

"""A model's scores of given tokens: log-probabilities, or what another measure gives."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from turnwise.config import LearningConfig
from turnwise.forward.hidden import Images
from turnwise.forward.logprobs import token_logprobs
from turnwise.forward.packing import Slicing
from turnwise.forward.prefix_trees import tree_logprobs
from turnwise.learning.batch import MicroBatch, by_length, rows_of_images, shifted
from turnwise.learning.ranks import ALONE, Compute, Ranks, is_leader, own_batches
from turnwise.tokens import KeptTokens
from turnwise.types import Trajectory

Sequenced = tuple[NDArray[np.int64], NDArray[np.bool_]]
"""Ids and which of them are wanted, [n] each."""

Measure = Callable[..., Tensor]
"""The arguments of `token_logprobs` -> float32[N]."""

Score = Callable[..., list[NDArray[np.float32]]]
"""`score` of a model and temperature: sequences -> float32[n] each; options as there."""


def logprobs(
    *arguments: Any, images: Images, slicing: Slicing | None, kept: KeptTokens | None = None
) -> Tensor:
    return token_logprobs(*arguments, images=images, slicing=slicing, kept=kept)[0]


def batch_logprobs(
    model: nn.Module,
    batch: MicroBatch,
    temperature: float,
    config: LearningConfig,
    entropy_gradient: bool = False,
    slicing: Slicing | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies, float32[N] each, of a micro-batch's trained tokens."""
    if batch.tree_batch is not None:
        return tree_logprobs(
            model,
            batch.tree_batch,
            temperature,
            config.autocast,
            kept=batch.kept,
            entropy_gradient=entropy_gradient,
        )
    return token_logprobs(
        model,
        batch.inputs,
        batch.selected,
        batch.targets,
        temperature,
        config.autocast,
        images=batch.images,
        slicing=slicing,
        replay=batch.replay,
        kept=batch.kept,
        entropy_gradient=entropy_gradient,
    )


def score(
    model: nn.Module,
    sequences: Sequence[Sequenced],
    config: LearningConfig,
    temperature: float,
    measure: Measure = logprobs,
    images: Images = (),
    kept: Sequence[KeptTokens | None] = (),
    ranks: Ranks = ALONE,
    compute: Compute | None = None,
    slicing: Slicing | None = None,
) -> list[NDArray[np.float32]]:
    """Score each sequence, float32[n]: log-probabilities of its wanted tokens, or what `measure`
    gives; NaN for others, and for a first token, which nothing predicts.

    `temperature`, above 0, divides the logits. `images` are those of each sequence, none cut by
    what is wanted. `kept` is what distributions are over, else the vocabulary. Ranks that have
    parts of the model all call this with the same sequences and how they `compute`; each scores
    some, and all get all scores. `slicing` is that of the ranks, if rows may be computed in slices.
    """
    device = next(model.parameters()).device
    found = [np.full(len(ids), np.nan, np.float32) for ids, _ in sequences]
    wanted = [1 + np.flatnonzero(chosen[1:]) for _, chosen in sequences]
    # What follows the last wanted token is not computed.
    ends = [int(places[-1]) + 1 if len(places) else 0 for places in wanted]
    compute = compute or ALONE.shard(model)
    most, own = config.tokens_per_micro_batch, []
    cut = partial(by_length, length=lambda i: ends[i] - 1, tokens_per_micro_batch=most)
    rows = [i for i, end in enumerate(ends) if end > 1]
    for batch, counts in own_batches(ranks, rows, ends.__getitem__, cut):
        texts = [(sequences[i][0][: ends[i]], sequences[i][1][: ends[i]]) for i in batch]
        inputs, selected = shifted(texts)
        targets = torch.from_numpy(np.concatenate([sequences[i][0][wanted[i]] for i in batch]))
        seen = [[p for p in images[i] if p.end <= ends[i]] for i in batch] if images else []
        left = KeptTokens.chosen([(kept[i], wanted[i]) for i in batch]) if kept else None
        over: dict[str, Any] = {} if left is None else {"kept": left}
        with torch.no_grad():
            measured = compute(
                partial(measure, images=seen, slicing=slicing, **over),
                inputs.to(device),
                selected.to(device),
                targets.to(device),
                temperature,
                config.autocast,
            )
        if counts and is_leader(ranks):
            parts = torch.split(measured.cpu(), [len(wanted[i]) for i in batch])
            own += [(i, part.numpy()) for i, part in zip(batch, parts, strict=True)]
    # One exchange for all passes: every rank needs the scores of every sequence.
    for i, part in (scored for of_rank in ranks.gather(own) for scored in of_rank):
        found[i][wanted[i]] = part
    return found


def scored_by(
    model: nn.Module, config: LearningConfig, temperature: float, **options: Any
) -> Score:
    return partial(score, model, config=config, temperature=temperature, **options)


def score_contexts(
    scored: Score, members: Sequence[Trajectory], measure: Measure = logprobs, whole: bool = True
) -> list[NDArray[np.float32]]:
    """Score what the policy sampled, float32[n] a trajectory, each token in its own context; over
    the whole vocabulary, or over the tokens among which each was drawn."""
    sequences = [
        (member.tokens.ids[span], member.tokens.mask[span])
        for member in members
        for span in member.tokens.spans
    ]
    images = rows_of_images(
        member.tokens.images_in(span) for member in members for span in member.tokens.spans
    )
    kept = [
        None if whole or member.tokens.kept is None else member.tokens.kept[span]
        for member in members
        for span in member.tokens.spans
    ]
    found = iter(scored(sequences, measure=measure, images=images, kept=kept))
    return [np.concatenate([next(found) for _ in member.tokens.spans]) for member in members]


def sampled_logprobs(
    model: nn.Module,
    members: Sequence[Trajectory],
    config: LearningConfig,
    temperature: float,
    ranks: Ranks = ALONE,
    compute: Compute | None = None,
    slicing: Slicing | None = None,
) -> list[NDArray[np.float64]]:
    """Log-probabilities of what was sampled, float64[n], over the tokens it was drawn among."""
    scored = scored_by(model, config, temperature, ranks=ranks, compute=compute, slicing=slicing)
    rows = score_contexts(scored, members, whole=False)
    return [row.astype(np.float64) for row in rows]

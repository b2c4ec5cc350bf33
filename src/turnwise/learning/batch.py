"""Micro-batches of tensors, made of graded trajectories.

The loss mask, the denominators and the shift by one (position t predicts token t+1) are decided
here and nowhere else.

Next: `learning/policy.py`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnwise.algorithms.aggregation import Aggregation, Totals
from turnwise.algorithms.algorithm import Algorithm
from turnwise.forward.prefix_trees import TreeBatch
from turnwise.forward.routing import Replay
from turnwise.learning.credits import Credits
from turnwise.learning.ranks import Ranks, Row, is_leader, own_batches
from turnwise.tokens import NO_EXPERT, Image, KeptTokens, Source, Tokens
from turnwise.types import Group, Trajectory, TrajectoryId

OBSERVATIONS = (Source.TOOL, Source.ENVIRONMENT)


@dataclass(frozen=True)
class Example:
    """A sequence to train on, a context; arrays of n tokens, up to the last trained one."""

    name: str
    group: str
    ids: NDArray[np.int64]
    trained: NDArray[np.bool_]
    """True where the token is in the loss. Token 0 never is: nothing predicts it."""
    sampled: NDArray[np.bool_]
    """True where the policy sampled the token."""
    behaviour_logprob: NDArray[np.float32]
    """Log-probabilities under the policy that sampled."""
    old_logprob: NDArray[np.float32]
    """Log-probabilities under the policy that ratios are to: the sampling one, or the learner's."""
    advantage: NDArray[np.float32]
    weight: float = 0.0
    """Weight of each trained token in the loss: set by `weigh`."""
    loss_scale: NDArray[np.float32] | None = None
    """Factor of each token's objective; as `kl_penalty` by `apply_token_filter`, else None."""
    kl_penalty: NDArray[np.float32] | None = None
    """Coefficient of each token's divergence from the policy before the update."""
    images: tuple[Image, ...] = ()
    """Images that some of the tokens stand for; none of these tokens is trained."""
    trajectory: TrajectoryId | None = None
    """The trajectory that it is a context of; None where there is none, as in demonstrations."""
    start: int = 0
    """The place of its first token in the trajectory."""
    experts: NDArray[np.int16] | None = None
    """int16[n, routers, k], the experts that sampled the tokens; see `Tokens.experts`."""
    kept: KeptTokens | None = None
    """The tokens among which each one was drawn."""


@dataclass(frozen=True)
class MicroBatch:
    """The input of one forward and backward pass; N trained tokens, in row-major order. Sequences
    are padded on the right with id 0: no real token of a causal model sees a later one."""

    names: tuple[str, ...]
    inputs: Tensor
    """int64[B, T]: every token but the last, padded."""
    selected: Tensor
    """bool[B, T]: True where the position predicts a trained token."""
    targets: Tensor
    """int64[N]: the trained tokens."""
    sequence: Tensor
    """int64[N]: the row of each."""
    sampled: Tensor
    """bool[N]"""
    behaviour_logprob: Tensor
    """float32[N]"""
    old_logprob: Tensor
    """float32[N]"""
    advantage: Tensor
    """float32[N]"""
    weight: Tensor
    """float32[N]"""
    loss_scale: Tensor | None
    """float32[N]; None, as `kl_penalty` is, where no example was treated."""
    kl_penalty: Tensor | None
    """float32[N]"""
    tree_batch: TreeBatch | None = None
    """The trees computed in place of `inputs` where sequences share their beginnings."""
    images: tuple[tuple[Image, ...], ...] = ()
    """The images of each row; empty where there are none at all."""
    replay: Replay | None = None
    """The experts that the inputs are sent to; None where the model's routers choose."""
    kept: KeptTokens | None = None
    """The tokens over which probabilities sum to 1 at each of N places; None: the vocabulary."""

    def problem(self, numbers: Tensor) -> str:
        """Name the sequences in which a number, [N], is not finite. Losses come with
        log-probabilities added, since clamped ratios would hide an infinite one."""
        bad = ~torch.isfinite(numbers)
        if not bad.any():
            return ""
        rows = sorted(set(self.sequence[bad].tolist()))
        return f"the loss is not finite in {', '.join(self.names[row] for row in rows)}"


def loss_mask(tokens: Tokens, mask_observations: bool) -> NDArray[np.bool_]:
    """bool[n]: which tokens are trained, from their provenance alone. `mask_observations=False`
    adds what tools and the environment wrote, which trains the model to invent tool output, and
    exists only to show the harm. Images are never trained."""
    if mask_observations:
        return tokens.mask
    # Copies are left out: they are trained where they were copied from.
    observed: NDArray[np.bool_] = np.isin(tokens.source, OBSERVATIONS) & ~tokens.copied
    trained: NDArray[np.bool_] = tokens.mask | (observed & ~tokens.image_mask)
    return trained


def policy_examples(
    groups: Sequence[Group], credits: Credits, algorithm: Algorithm, mask_observations: bool
) -> list[Example]:
    """The weighted examples of an optimizer batch's trained trajectories; the others are in no
    denominator. Each context is an example, and a trajectory one sequence for the weights. Raises
    KeyError for a trained trajectory without an advantage."""
    examples = [
        _policy_contexts(member, credits.advantages[member.id], mask_observations)
        for group in groups
        for member in group.graded
        if member.id in credits.trained
    ]
    return _weigh(examples, partial(algorithm.call, "aggregation"))


def supervised_examples(
    tokens: Tokens, name: str, mask: NDArray[np.bool_] | None = None
) -> list[Example]:
    """Examples to imitate, one a context: tokens of the mask, or the model's, advantage 1."""
    trained = tokens.mask if mask is None else mask
    return _contexts(name, name, tokens, trained, trained.astype(np.float32))


def weigh(examples: Sequence[Example], aggregation: Aggregation) -> list[Example]:
    """Give each example, a sequence by itself, its weight in the loss of their optimizer batch."""
    return _weigh([[example] for example in examples], aggregation)


def _weigh(sequences: Sequence[Sequence[Example]], aggregation: Aggregation) -> list[Example]:
    """Weigh as `weigh`; the examples of a sequence together have the weight of one."""
    counts = np.array([sum(e.trained.sum() for e in sequence) for sequence in sequences], np.int64)
    tasks = [sequence[0].group for sequence in sequences]
    # By the whole optimizer batch, so that no cut into micro-batches changes the gradient.
    weights = aggregation(counts, tasks, Totals.of(counts, tasks))
    return [
        replace(example, weight=float(weight))
        for sequence, weight in zip(sequences, weights, strict=True)
        for example in sequence
    ]


def apply_token_filter(examples: Sequence[Example], algorithm: Algorithm) -> list[Example]:
    """Let the algorithm's token filter rank the trained tokens of an optimizer batch."""
    if algorithm.token_filter == "none" or not examples:
        return list(examples)
    treatment = algorithm.call(
        "token_filter",
        np.concatenate([e.advantage[e.trained] for e in examples]).astype(np.float64),
        np.concatenate([e.old_logprob[e.trained] for e in examples]).astype(np.float64),
    )
    ends = np.cumsum([e.trained.sum() for e in examples])[:-1]
    treated = []
    for example, *numbers in zip(examples, *(np.split(t, ends) for t in treatment), strict=True):
        scale, penalty = np.zeros((2, len(example.ids)), np.float32)
        scale[example.trained], penalty[example.trained] = numbers
        treated.append(replace(example, loss_scale=scale, kl_penalty=penalty))
    return treated


def by_group(examples: Iterable[Example]) -> list[list[Example]]:
    grouped: dict[str, list[Example]] = {}
    for example in examples:
        grouped.setdefault(example.group, []).append(example)
    return list(grouped.values())


def pack(examples: Iterable[Example], tokens_per_micro_batch: int) -> Iterator[list[Example]]:
    """Sort by length and cut into micro-batches of at most that many padded tokens; a longer one is
    alone, and one without trained tokens left out."""
    trained = (example for example in examples if example.trained.any())
    return by_length(trained, lambda example: len(example.ids) - 1, tokens_per_micro_batch)


def own_micro_batches(
    ranks: Ranks, examples: Iterable[Example], tokens_per_micro_batch: int, device: torch.device
) -> Iterator[tuple[list[Example], MicroBatch]]:
    """Cut this rank's examples as `pack`, into as many micro-batches as other ranks have. One
    without members counts nowhere: others have rows left, or compute the same rows."""
    trained = [example for example in examples if example.trained.any()]
    cut = partial(pack, tokens_per_micro_batch=tokens_per_micro_batch)
    for members, counts in own_batches(ranks, trained, lambda example: len(example.ids), cut):
        weighed = members if counts else [replace(member, weight=0.0) for member in members]
        yield members if counts and is_leader(ranks) else [], collate(weighed, device)


def by_length(
    rows: Iterable[Row], length: Callable[[Row], int], tokens_per_micro_batch: int
) -> Iterator[list[Row]]:
    """Rows, the shortest first, cut as `pack` cuts examples; those of length 0 are left out."""
    current: list[Row] = []
    for row in sorted(rows, key=length):
        # In ascending order the newest is the longest, to which all are padded.
        if current and (len(current) + 1) * length(row) > tokens_per_micro_batch:
            yield current
            current = []
        if length(row):
            current.append(row)
    if current:
        yield current


def shifted(
    sequences: Sequence[tuple[NDArray[np.int64], NDArray[np.bool_]]],
) -> tuple[Tensor, Tensor]:
    """int64[B, T] all tokens but the last, and bool[B, T]: whether each predicts a wanted one."""
    length = max(len(ids) for ids, _ in sequences) - 1
    inputs = torch.zeros(len(sequences), length, dtype=torch.long)
    selected = torch.zeros(len(sequences), length, dtype=torch.bool)
    for row, (ids, wanted) in enumerate(sequences):
        inputs[row, : len(ids) - 1] = torch.tensor(ids[:-1])
        selected[row, : len(ids) - 1] = torch.tensor(wanted[1:])
    return inputs, selected


def collate(examples: Sequence[Example], device: torch.device) -> MicroBatch:
    inputs, selected = shifted([(example.ids, example.trained) for example in examples])
    counts = [int(example.trained.sum()) for example in examples]

    def flat(arrays: Iterable[NDArray[np.generic]]) -> Tensor:
        pieces = [array[example.trained] for array, example in zip(arrays, examples, strict=True)]
        return torch.from_numpy(np.concatenate(pieces)).to(device)

    # A token filter treats all examples of an optimizer batch, or there is none.
    scales = [example.loss_scale for example in examples if example.loss_scale is not None]
    penalties = [example.kl_penalty for example in examples if example.kl_penalty is not None]
    return MicroBatch(
        names=tuple(example.name for example in examples),
        inputs=inputs.to(device),
        selected=selected.to(device),
        targets=flat(example.ids for example in examples),
        sequence=torch.from_numpy(np.repeat(np.arange(len(examples)), counts)).to(device),
        sampled=flat(example.sampled for example in examples),
        behaviour_logprob=flat(example.behaviour_logprob for example in examples),
        old_logprob=flat(example.old_logprob for example in examples),
        advantage=flat(example.advantage for example in examples),
        weight=flat(np.full(len(example.ids), example.weight, np.float32) for example in examples),
        loss_scale=flat(scales) if len(scales) else None,
        kl_penalty=flat(penalties) if len(penalties) else None,
        images=rows_of_images(example.images for example in examples),
        replay=_replay([example.experts for example in examples], inputs.shape, device),
        kept=KeptTokens.chosen([(one.kept, np.flatnonzero(one.trained)) for one in examples]),
    )


def _replay(
    rows: Sequence[NDArray[np.int16] | None], shape: torch.Size, device: torch.device
) -> Replay | None:
    """The experts of inputs of shape [B, T], of the rows that have some."""
    shapes = [row.shape[1:] for row in rows if row is not None]
    if not shapes:
        return None
    experts = torch.full((*shape, *shapes[0]), NO_EXPERT, dtype=torch.long)
    for place, row in zip(experts, rows, strict=True):
        if row is not None:
            # A last token is a target and no input.
            place[: len(row) - 1] = torch.from_numpy(row[:-1].astype(np.int64))
    return Replay(experts.to(device))


def rows_of_images(rows: Iterable[tuple[Image, ...]]) -> tuple[tuple[Image, ...], ...]:
    together = tuple(rows)
    return together if any(together) else ()


def _policy_contexts(
    member: Trajectory, advantage: NDArray[np.float32], mask_observations: bool
) -> list[Example]:
    mask = loss_mask(member.tokens, mask_observations)
    if not mask_observations:
        advantage = _spread(advantage, member.tokens.mask)
    examples = _contexts(str(member.id), member.group, member.tokens, mask, advantage)
    experts, kept = member.tokens.experts, member.tokens.kept
    places = [slice(example.start, example.start + len(example.ids)) for example in examples]
    return [
        replace(
            example,
            trajectory=member.id,
            experts=None if experts is None else experts[own],
            kept=None if kept is None else kept[own],
        )
        for example, own in zip(examples, places, strict=True)
    ]


def _spread(advantage: NDArray[np.float32], sampled: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Give each token the advantage of the last sampled token before it, 0 before the first."""
    # accumulate carries the place of the last sampled token on.
    last = np.maximum.accumulate(np.where(sampled, np.arange(len(sampled)), -1))
    return np.where(last >= 0, advantage[last], np.float32(0))


def _contexts(
    name: str, group: str, tokens: Tokens, mask: NDArray[np.bool_], advantage: NDArray[np.float32]
) -> list[Example]:
    """One example for each context, cut after the last trained token."""
    examples = []
    for span in tokens.spans:
        trained = mask[span].copy()  # a slice is a view of the caller's mask
        # Nothing predicts a context's first token.
        trained[:1] = False
        end = int(np.flatnonzero(trained)[-1]) + 1 if trained.any() else 0
        examples.append(
            Example(
                name=name,
                group=group,
                ids=tokens.ids[span][:end],
                trained=trained[:end],
                sampled=tokens.mask[span][:end],
                behaviour_logprob=tokens.logprob[span][:end],
                old_logprob=tokens.logprob[span][:end],
                advantage=advantage[span][:end],
                images=tokens.images_in(span, end),
                start=span.start,
            )
        )
    return examples

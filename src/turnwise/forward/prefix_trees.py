"""Sequences that begin alike, computed as one tree: each shared beginning is computed once.

The trajectories of a group share their prompt, and, once the policy is sure of itself, most of
their turns. Their tokens become the nodes of a tree, which is laid out as one sequence. A token
sees its ancestors alone and has the position that it has in its own text, so log-probabilities and
gradients are those of the sequences by themselves. Neighbours, which see much the same, attend in
blocks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from turnwise.errors import ConfigError
from turnwise.forward.attention import attend, attending, recomputed
from turnwise.forward.equality import (
    FOREIGN_ERRORS,
    SHORT,
    is_near,
    ordinary_tokens,
    past_boundaries,
)
from turnwise.forward.hidden import base_model, last_hidden
from turnwise.forward.logprobs import score_tokens, token_logprobs
from turnwise.tokens import KeptTokens

IN_BLOCKS = "turnwise_in_blocks"
"""Name of the attention function under which transformers finds it."""
BLOCK = 128
"""Tokens that attend together; all that they see is gathered for them."""


@dataclass(frozen=True)
class Tree:
    """The inputs of some sequences (all tokens but the last) with n distinct beginnings."""

    ids: NDArray[np.int64]
    """int64[n], each after its parent."""
    depths: NDArray[np.int64]
    """int64[n], the place in its sequences, from 0."""
    parents: NDArray[np.int64]
    """int64[n], -1 for the first token."""
    places: list[NDArray[np.int64]]
    """The nodes of each sequence's inputs."""

    def runs(self) -> list["Run"]:
        """The nodes in order, as far as each is the parent of the next."""
        # A run begins at each node whose parent is not the node before it. Node 0, whose parent is
        # -1, is added by hand: it passes this comparison.
        apart = np.flatnonzero(self.parents != np.arange(-1, len(self.ids) - 1))
        starts = np.unique(np.concatenate([[0], apart]))
        # The run in which each run's parent lies; parents come before their children, so that it is
        # in `found` by then. -1 where there is no parent.
        owners = np.searchsorted(starts, self.parents[starts], "right") - 1
        found: list[Run] = []
        ends = [*starts[1:].tolist(), len(self.ids)]
        for start, end, owner in zip(starts.tolist(), ends, owners.tolist(), strict=True):
            spans: tuple[tuple[int, int], ...] = ()
            if owner >= 0:
                before = found[owner]
                # Of the run that it parts from, the beginning up to the parent is an ancestor.
                seen = int(self.parents[start]) - before.start + 1
                spans = (*before.spans, (before.start, seen))
            found.append(Run(start, end - start, spans))
        return found


@dataclass(frozen=True)
class Run:
    """Neighbouring nodes, of which each is the parent of the next."""

    start: int
    length: int
    spans: tuple[tuple[int, int], ...]
    """The ancestors of the first one: parts of earlier runs, first node and number of nodes."""

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def pairs(self) -> int:
        """How many pairs of nodes attend."""
        before = sum(length for _, length in self.spans)
        return self.length * before + self.length * (self.length + 1) // 2

    def moved(self, by: int) -> "Run":
        spans = tuple((start + by, length) for start, length in self.spans)
        return Run(self.start + by, self.length, spans)


@dataclass(frozen=True)
class TreeBatch:
    """Trees for one pass, one after the other; of N wanted tokens U pairs are distinct."""

    ids: Tensor
    """int64[T]"""
    positions: Tensor
    """int64[T], each in its text."""
    runs: list[Run]
    """All, in order: a token sees those before it in its run, and the run's spans."""
    predictors: Tensor
    """int64[U], the places of the tokens that predict, ascending."""
    targets: Tensor
    """int64[U]"""
    wanted: Tensor
    """int64[N], the pair of each wanted token, from 0 to U - 1, sequence by sequence."""


@dataclass(frozen=True)
class Block:
    """Neighbouring inputs of a batch of trees and all that any of them sees."""

    inputs: slice
    seen: Tensor
    """int64[k], which inputs."""
    mask: Tensor
    """bool[1, 1, inputs, k], True where an input sees it."""


def prefix_tree(sequences: Sequence[NDArray[np.int64]]) -> Tree:
    """The tree of sequences' inputs: each branches off the earlier one with most in common."""
    every = [sequence[:-1] for sequence in sequences]
    places: list[NDArray[np.int64]] = []
    parents: list[NDArray[np.int64]] = []
    fresh: list[tuple[NDArray[np.int64], int]] = []
    count = 0
    for number, inputs in enumerate(every):
        common = [_common(inputs, earlier) for earlier in every[:number]]
        shared = max(common, default=0)
        # A path has all ancestors of its nodes: the longest common beginning is enough.
        before = places[common.index(shared)][:shared] if shared else np.empty(0, np.int64)
        path = np.concatenate([before, np.arange(count, count + len(inputs) - shared)])
        # Moved on by one place, a path has the parent of each of its nodes.
        parents.append(np.concatenate([[-1], path])[shared : len(inputs)])
        fresh.append((inputs[shared:], shared))
        places.append(path)
        count += len(inputs) - shared
    return Tree(
        ids=np.concatenate([ids for ids, _ in fresh]),
        depths=np.concatenate([depth + np.arange(len(ids)) for ids, depth in fresh]),
        parents=np.concatenate(parents),
        places=places,
    )


def _common(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    size = min(len(one), len(other))
    apart = np.flatnonzero(one[:size] != other[:size])
    return int(apart[0]) if len(apart) else size


def batch_trees(
    trees: Sequence[Tree],
    sequences: Sequence[tuple[NDArray[np.int64], NDArray[np.bool_]]],
    device: torch.device,
) -> TreeBatch:
    """Tensors of one pass. `sequences` are ids and wanted tokens of the trees, in order."""
    rest = iter(sequences)
    predictors, targets, start = [], [], 0
    runs: list[Run] = []
    for tree in trees:
        for places in tree.places:
            ids, wanted = next(rest)
            predictors.append(start + places[wanted[1:]])
            targets.append(ids[1:][wanted[1:]])
        runs += [run.moved(start) for run in tree.runs()]
        start += len(tree.ids)
    # Sequences that agree want the same token after the same node: the output layer scores each
    # such pair once. np.unique sorts the pairs, so predictors ascend.
    pairs = np.stack([np.concatenate(predictors), np.concatenate(targets)])
    distinct, which = np.unique(pairs, axis=1, return_inverse=True)

    def tensor(array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    return TreeBatch(
        ids=tensor(np.concatenate([tree.ids for tree in trees])),
        positions=tensor(np.concatenate([tree.depths for tree in trees])),
        runs=runs,
        predictors=tensor(distinct[0]),
        targets=tensor(distinct[1]),
        # NumPy 2.0, unlike versions before and after it, gives the inverse two dimensions.
        wanted=tensor(which.reshape(-1)),
    )


def blocks_of(runs: Sequence[Run], device: torch.device, size: int) -> Iterator[Block]:
    """Neighbouring inputs, `size` at a time, the inputs that they see, and which each sees."""
    number, count = 0, runs[-1].end
    for start in range(0, count, size):
        end = min(start + size, count)
        # Runs cover the tokens in order: no block's first run is before an earlier block's.
        while runs[number].end <= start:
            number += 1
        parts = [
            (range(max(run.start, start), min(run.end, end)), run.start, run.spans)
            for run in runs[number:]
            if run.start < end
        ]
        # Nodes come after their parents: no token of the block sees one behind its end.
        seen = np.zeros(end, bool)
        for inputs, first, before in parts:
            for place, length in [*before, (first, inputs.stop - first)]:
                seen[place : place + length] = True
        # The place of each seen token among those that are gathered.
        columns = np.cumsum(seen) - 1
        mask = np.zeros((end - start, columns[-1] + 1), bool)
        for inputs, first, before in parts:
            rows = slice(inputs.start - start, inputs.stop - start)
            for place, length in before:
                mask[rows, columns[place] : columns[place] + length] = True
            # A run's tokens up to here are all seen: neighbours, and among them causal.
            own = np.arange(first, inputs.stop) <= np.array(inputs)[:, None]
            mask[rows, columns[first] : columns[inputs.stop - 1] + 1] = own
        yield Block(
            slice(start, end),
            torch.from_numpy(np.flatnonzero(seen)).to(device),
            torch.from_numpy(mask)[None, None].to(device),
        )


def tree_logprobs(
    model: nn.Module,
    tree_batch: TreeBatch,
    temperature: float,
    autocast: bool,
    *,
    kept: KeptTokens | None = None,
    entropy_gradient: bool = False,
) -> tuple[Tensor, Tensor]:
    """The results of `token_logprobs` for the N wanted tokens."""
    score = partial(score_tokens, model, entropy_gradient=entropy_gradient)
    hidden, targets = _hidden(model, tree_batch, autocast), tree_batch.targets
    if kept is not None:  # each wanted token was drawn among tokens of its own
        wanted = tree_batch.wanted
        return score(hidden[wanted], targets[wanted], temperature, kept=kept)
    logprobs, entropies = score(hidden, targets, temperature)
    return logprobs[tree_batch.wanted], entropies[tree_batch.wanted]


def _hidden(model: nn.Module, tree_batch: TreeBatch, autocast: bool) -> Tensor:
    """[U, width], at the predictors."""
    base, device = base_model(model), tree_batch.ids.device
    # The mask is empty, so that any other function would fail on it: none is made.
    with attending(base, IN_BLOCKS, _attend):
        hidden = last_hidden(
            model,
            tree_batch.ids[None],
            autocast,
            attention_mask=torch.empty(1, 1, 0, 0, device=device),
            position_ids=tree_batch.positions[None],
            blocks=list(blocks_of(tree_batch.runs, device, BLOCK)),
        )
    return hidden[0, tree_batch.predictors]


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    blocks: Sequence[Block],
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention of a batch of trees: query, key and value are [1, heads, T, size]."""
    queries = _split(query, [block.inputs.stop - block.inputs.start for block in blocks])
    keys, values = _gathered(key, blocks), _gathered(value, blocks)
    parts = [
        attend(module, queries[number], keys[number], values[number], block.mask, **options)[0]
        for number, block in enumerate(blocks)
    ]
    return torch.cat(parts, 1), None


def _gathered(states: Tensor, blocks: Sequence[Block]) -> Sequence[Tensor]:
    """Gather what each block sees, [1, heads, seen, size], of states [1, heads, T, size]. In one
    piece, since the gradient of each piece is as large as the states, and by an embedding, whose
    gradient is summed by several threads."""
    _, heads, tokens, size = states.shape
    seen = torch.cat([block.seen for block in blocks])
    rows = functional.embedding(seen, states[0].transpose(0, 1).reshape(tokens, -1))
    every = rows.view(1, len(seen), heads, size).transpose(1, 2)
    return _split(every, [len(block.seen) for block in blocks])


def _split(states: Tensor, sizes: list[int]) -> Sequence[Tensor]:
    pieces: Sequence[Tensor] = torch.split(states, sizes, 2)
    return pieces


def check_sharing(model: nn.Module, longest: int = SHORT) -> None:
    """Raise ConfigError for a model that cannot run trees of at most `longest` tokens a sequence:
    it needs full attention by `sdpa`, and no gradient checkpointing, which forgets the blocks."""
    base = base_model(model)
    settings = base.config.get_text_config()
    types = getattr(settings, "layer_types", None) or ["full_attention"]
    plain = set(types) == {"full_attention"} and not getattr(settings, "sliding_window", None)
    sdpa = settings._attn_implementation == "sdpa"
    if not plain or not sdpa or recomputed(base) or not _agrees(model, longest):
        raise ConfigError(
            f"learning.share_prefixes: {type(base).__name__} does not have the plain full "
            "attention (sdpa, without gradient checkpointing) that this needs: set it to false"
        )


@torch.no_grad()
def _agrees(model: nn.Module, longest: int) -> bool:
    """Whether two sequences score as they do by themselves, past every configured boundary."""
    base, device = base_model(model), next(model.parameters()).device
    length = past_boundaries(base, longest)
    beginning = ordinary_tokens(base, length - length // 4)
    both = np.array([beginning + ordinary_tokens(base, length // 4, seed) for seed in (1, 2)])
    # Nothing predicts a first token.
    wanted = np.arange(length) > 0
    ids = torch.from_numpy(both).to(device)
    every = torch.ones_like(ids[:, 1:], dtype=torch.bool)
    try:
        tree_batch = batch_trees([prefix_tree(list(both))], [(row, wanted) for row in both], device)
        shared, _ = tree_logprobs(model, tree_batch, 1.0, autocast=False)
        alone, _ = token_logprobs(
            model, ids[:, :-1], every, ids[:, 1:].flatten(), 1.0, autocast=False
        )
    except FOREIGN_ERRORS:
        return False
    return is_near(shared, alone, base.dtype)

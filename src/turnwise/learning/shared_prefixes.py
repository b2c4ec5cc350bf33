"""A group's examples that are computed as a tree (`forward/prefix_trees.py`), in batches."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from turnwise.forward.prefix_trees import Tree, batch_trees, prefix_tree
from turnwise.learning.batch import Example, MicroBatch, by_group, collate
from turnwise.learning.ranks import Ranks, own_batches

Shared = tuple[list[Example], Tree]
"""Examples of a group, and the tree of their inputs."""

WIDTHS_PER_TOKEN = 2
"""The cost of a token apart from attention, in attending pairs per number of the model's width: 6
by multiplications, which attention does at a third of the rate on a CPU."""


def build_prefix_trees(
    examples: Sequence[Example], width: int, tokens_per_micro_batch: int
) -> tuple[list[Shared], list[Example]]:
    """Trees of each group's examples, where that is less work for a model of that width, and the
    other examples. A tree of more tokens than a micro-batch has is cut in two."""
    shared, others = [], []
    for group in by_group(example for example in examples if example.trained.any()):
        # Sorted, texts that begin alike are neighbours, and stay together where a tree is halved.
        ordered = sorted(group, key=lambda example: example.ids.tolist())
        for members, tree in _cut_trees(ordered, tokens_per_micro_batch):
            if len(members) > 1 and _is_less_work(tree, width):
                shared.append((members, tree))
            else:
                others += members
    return shared, others


def own_tree_batches(
    ranks: Ranks, shared: Sequence[Shared], tokens_per_micro_batch: int, device: torch.device
) -> Iterator[tuple[list[Example], MicroBatch]]:
    """Cut this rank's trees into micro-batches, as `own_micro_batches`; each stays on one rank."""
    cut = partial(pack_trees, tokens_per_micro_batch=tokens_per_micro_batch)
    for part, counts in own_batches(ranks, shared, _size, cut):
        members = [member for examples, _ in part for member in examples]
        sequences = [(member.ids, member.trained) for member in members]
        tree_batch = batch_trees([tree for _, tree in part], sequences, device)
        weighed = members if counts else [replace(member, weight=0.0) for member in members]
        yield members if counts else [], replace(collate(weighed, device), tree_batch=tree_batch)


def _cut_trees(examples: list[Example], most: int) -> Iterator[tuple[list[Example], Tree]]:
    """Neighbours of the sorted examples, in trees of at most that many tokens."""
    tree = prefix_tree([example.ids for example in examples])
    if len(tree.ids) <= most or len(examples) == 1:
        yield examples, tree
        return
    half = len(examples) // 2
    yield from _cut_trees(examples[:half], most)
    yield from _cut_trees(examples[half:], most)


def _is_less_work(tree: Tree, width: int) -> bool:
    lengths = np.array([len(place) for place in tree.places], float)
    pairs = sum(run.pairs for run in tree.runs())
    token = WIDTHS_PER_TOKEN * width
    # By itself a text of n tokens has about n^2 / 2 pairs.
    return bool(token * len(tree.ids) + pairs < (token * lengths + lengths**2 / 2).sum())


def pack_trees(shared: Iterable[Shared], tokens_per_micro_batch: int) -> Iterator[list[Shared]]:
    """Micro-batches of at most that many tokens; a tree that has more is alone."""
    current: list[Shared] = []
    for one in shared:
        if current and sum(map(_size, [*current, one])) > tokens_per_micro_batch:
            yield current
            current = []
        current.append(one)
    if current:
        yield current


def _size(one: Shared) -> int:
    return len(one[1].ids)

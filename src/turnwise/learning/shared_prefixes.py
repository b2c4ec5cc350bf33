"""The choice of the examples of a group that are computed as a tree, and micro-batches of trees.

Not here: trees, and how a model computes them (`forward/prefix_trees.py`).
"""

from collections.abc import Iterator, Sequence

import numpy as np

from turnwise.forward.prefix_trees import Tree, prefix_tree
from turnwise.learning.batch import Example, by_group

WIDTHS_PER_TOKEN = 2
"""The cost of a token apart from attention, in pairs of tokens that attend, for each number of the
model's width. By multiplications it is 6 (12 width² in a layer, 2 width for a pair); attention does
them at a third of the rate, as measured on a CPU."""


def build_prefix_trees(
    examples: Sequence[Example], width: int, tokens_per_micro_batch: int
) -> tuple[list[tuple[list[Example], Tree]], list[Example]]:
    """Trees of the examples of each group, where that is less work, and the other examples.

    `width` is the model's. A tree of more tokens than a micro-batch has is cut in two.
    """
    shared, others = [], []
    for group in by_group(example for example in examples if example.trained.any()):
        ordered = sorted(group, key=lambda example: example.ids.tolist())
        for members, tree in _cut_trees(ordered, tokens_per_micro_batch):
            if len(members) > 1 and _is_less_work(tree, width):
                shared.append((members, tree))
            else:
                others += members
    return shared, others


def _cut_trees(examples: list[Example], most: int) -> Iterator[tuple[list[Example], Tree]]:
    """Neighbours of the sorted examples, so that each tree has at most that many tokens."""
    tree = prefix_tree([example.ids for example in examples])
    if len(tree.ids) <= most or len(examples) == 1:
        yield examples, tree
        return
    half = len(examples) // 2
    yield from _cut_trees(examples[:half], most)
    yield from _cut_trees(examples[half:], most)


def _is_less_work(tree: Tree, width: int) -> bool:
    """Than the sequences by themselves."""
    lengths = np.array([len(place) for place in tree.places], float)
    pairs = sum(run.pairs for run in tree.runs())
    token = WIDTHS_PER_TOKEN * width
    return bool(token * len(tree.ids) + pairs < (token * lengths + lengths**2 / 2).sum())


def pack_trees(
    shared: Sequence[tuple[list[Example], Tree]], tokens_per_micro_batch: int
) -> Iterator[tuple[list[Example], list[Tree]]]:
    """Micro-batches of at most that many tokens: their examples, and the trees of these."""
    members: list[Example] = []
    trees: list[Tree] = []
    for examples, tree in shared:
        if trees and sum(len(t.ids) for t in [*trees, tree]) > tokens_per_micro_batch:
            yield members, trees
            members, trees = [], []
        members, trees = members + examples, [*trees, tree]
    if trees:
        yield members, trees

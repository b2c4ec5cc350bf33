"""Trees of sequences: laid out right; refused where a model cannot compute them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.tiny_models import tiny_model as any_model
from tests.learning.building import load_model
from turnwise.errors import ConfigError
from turnwise.forward.attention import recompute_layers
from turnwise.forward.prefix_trees import batch_trees, blocks_of, check_sharing, prefix_tree

pytestmark = pytest.mark.numbers

CPU = torch.device("cpu")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=7), min_size=1, max_size=6))
def test_a_tree_has_every_beginning_once(sequences: list[list[int]]) -> None:
    tree = prefix_tree([np.array(sequence) for sequence in sequences])
    inputs = [sequence[:-1] for sequence in sequences]
    beginnings = {tuple(one[: end + 1]) for one in inputs for end in range(len(one))}
    assert len(tree.ids) == len(beginnings)
    for one, places in zip(inputs, tree.places, strict=True):
        assert tree.ids[places].tolist() == one
        assert tree.depths[places].tolist() == list(range(len(one)))
        assert tree.parents[places].tolist() == [-1, *places[:-1]]


@pytest.mark.parametrize("block", [1, 2, 100])
def test_a_token_sees_its_ancestors(block: int) -> None:
    first, second = np.array([5, 6, 7, 1]), np.array([5, 6, 8, 9, 1])
    everything = [(one, np.arange(len(one)) > 0) for one in (first, second, first)]
    tree_batch = batch_trees([prefix_tree([first, second]), prefix_tree([first])], everything, CPU)
    assert tree_batch.ids.tolist() == [5, 6, 7, 8, 9, 5, 6, 7]
    assert tree_batch.positions.tolist() == [0, 1, 2, 2, 3, 0, 1, 2]
    sees = [
        part.seen[row].tolist()
        for part in blocks_of(tree_batch.runs, CPU, block)
        for row in part.mask[0, 0, : part.inputs.stop - part.inputs.start]
    ]
    assert sees == [[0], [0, 1], [0, 1, 2], [0, 1, 3], [0, 1, 3, 4], [5], [5, 6], [5, 6, 7]]
    assert tree_batch.predictors[tree_batch.wanted].tolist() == [0, 1, 2, 0, 1, 3, 4, 5, 6, 7]
    assert tree_batch.targets[tree_batch.wanted].tolist() == [6, 7, 1, 6, 8, 9, 1, 6, 7, 1]
    assert len(tree_batch.predictors) == 5 + 1 + 3


def test_models_with_other_attention_are_refused() -> None:
    check_sharing(load_model())
    windowed, eager = load_model("gemma2"), load_model()
    eager.config._attn_implementation = "eager"
    forgetful = load_model()
    recompute_layers(forgetful)
    for model in (windowed, eager, forgetful):
        with pytest.raises(ConfigError, match="share_prefixes"):
            check_sharing(model)


@pytest.mark.parametrize("kind", ["stablelm", "nemotron", "falcon", "doge", "gpt_neo"])
def test_models_whose_own_code_fails_on_trees_are_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match="share_prefixes"):
        check_sharing(any_model(kind), 128)

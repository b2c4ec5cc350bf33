"""Trees of sequences: laid out right; refused where a model cannot compute them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.tiny_models import tiny_model as any_model
from tests.learning.building import load_model
from turnwise.errors import ConfigError
from turnwise.forward.attention import recompute_layers
from turnwise.forward.prefix_trees import check_sharing, prefix_tree

pytestmark = pytest.mark.numbers


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

"""Images in records and batches: where they stand, what is trained, what is kept of them."""

import numpy as np
import pytest
import torch

from tests.learning.building import load_model
from turnwise.errors import NotSupportedError
from turnwise.forward.hidden import hidden_states
from turnwise.learning.auxiliary import observed_tokens
from turnwise.learning.batch import collate, loss_mask, supervised_examples
from turnwise.tokens import Image, Segment, Source, Tokens

pytestmark = pytest.mark.numbers


def record() -> Tokens:
    """A prompt with an image of three tokens, a turn, a result with two images, a turn."""
    tokens = Tokens.empty()
    user, tool, template = Source.USER, Source.TOOL, Source.TEMPLATE
    tokens = tokens.with_segments([Segment([1, 2], user), Segment([9] * 3, user, b"one")], 0)
    tokens = tokens.with_sampled([3, 4], [-0.1, -0.2], 0, 0)
    images = [Segment([9] * 2, tool, b"two"), Segment([9] * 2, tool, b"one")]
    tokens = tokens.with_segments([Segment([5], tool), *images, Segment([6], template)], 0)
    return tokens.with_sampled([7, 8], [-0.3, -0.4], 0, 1)


def test_where_images_stand_and_that_nothing_of_them_is_trained() -> None:
    tokens = record()
    assert tokens.images == (Image(2, 3, b"one"), Image(8, 2, b"two"), Image(10, 2, b"one"))
    assert np.flatnonzero(tokens.image_mask).tolist() == [2, 3, 4, 8, 9, 10, 11]
    assert tokens.images_in(slice(0, 15), 10) == tokens.images[:2]
    assert b"one" not in repr(tokens.images).encode()
    for mask in (loss_mask(tokens, True), loss_mask(tokens, False), observed_tokens(tokens)):
        assert mask.any()
        assert not (mask & tokens.image_mask).any()
    assert np.flatnonzero(observed_tokens(tokens)).tolist() == [7]
    assert np.flatnonzero(loss_mask(tokens, False)).tolist() == [5, 6, 7, 13, 14]


def test_a_new_context_keeps_images_whole() -> None:
    tokens = record()
    tokens = tokens.with_context(np.array([0, 1, 2, 3, 4, 13, 14]))
    tokens = tokens.with_segments([Segment([9] * 2, Source.TOOL, b"new")], 1)
    assert tokens.images[3:] == (Image(17, 3, b"one"), Image(22, 2, b"new"))
    first, second = tokens.spans
    assert tokens.images_in(first) == tokens.images[:3]
    assert tokens.images_in(second) == (Image(2, 3, b"one"), Image(7, 2, b"new"))


def test_examples_have_the_images_before_their_last_trained_token() -> None:
    tokens = record()
    (example,) = supervised_examples(tokens, "whole")
    assert example.images == tokens.images
    cut = np.zeros(len(tokens), np.bool_)
    cut[5:7] = True
    (short,) = supervised_examples(tokens, "short", cut)
    assert short.images == tokens.images[:1]
    assert len(short.ids) == 7
    words = Tokens.empty().with_sampled([1, 2], [-0.1, -0.1], 0, 0)
    (plain,) = supervised_examples(words, "words")
    assert collate([plain, example], torch.device("cpu")).images == ((), tokens.images)
    assert collate([plain], torch.device("cpu")).images == ()


def test_a_model_of_words_is_not_shown_images() -> None:
    inputs = torch.ones(1, 4, dtype=torch.long)
    with pytest.raises(NotSupportedError, match="takes no images"):
        hidden_states(load_model(), inputs, inputs > 0, False, [[Image(1, 2, b"")]])

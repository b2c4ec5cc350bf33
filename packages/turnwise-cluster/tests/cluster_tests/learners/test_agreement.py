"""A model that parts of one compute otherwise than one process does is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from turnwise.errors import NotSupportedError
from turnwise.learning.ranks import Alone, Compute
from turnwise_cluster.learners.agreement import check_agreement


class Wrong(Alone):
    """A way to divide a model by which something gets lost."""

    def __init__(self, found: Callable[[Any], Any]) -> None:
        self.found = found

    def shard(self, model: nn.Module) -> Compute:
        return lambda function, *arguments: self.found(function(model, *arguments))


class Choosing(Alone):
    """A rank beside one whose text has reached other weights."""

    count = 2

    def gather(self, value: Any) -> list[Any]:
        return [value, tuple(not one for one in value) if isinstance(value, tuple) else value]


def gradient_of_half(found: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    half = len(found[0]) // 2
    return torch.cat([found[0][:half].detach(), found[0][half:]]), found[1]


@pytest.fixture
def model(load_model: Callable[..., Any]) -> Any:
    return load_model("gemma2")


def test_what_is_the_same_agrees(model: Any) -> None:
    check_agreement(Alone(), model)


@pytest.mark.parametrize(
    "found",
    [
        lambda found: (found[0] + 0.01, found[1]),
        lambda found: (found[0] * float("nan"), found[1]),
        gradient_of_half,
    ],
    ids=["other numbers", "no numbers", "another gradient"],
)
def test_what_is_not_the_same_is_refused(model: Any, found: Callable[[Any], Any]) -> None:
    with pytest.raises(NotSupportedError, match=r"off by .* Set cluster.learners=1"):
        check_agreement(Wrong(found), model)


def test_weights_that_only_some_texts_reach_are_refused(model: Any) -> None:
    with pytest.raises(NotSupportedError, match="depends on the text"):
        check_agreement(Choosing(), model)

"""A model gets its cache by the name that its own version of transformers has for it."""

from types import SimpleNamespace
from typing import Any

import pytest

from turnwise.forward.cache_names import cache_name, cache_of


class Present:
    def forward(self, input_ids: Any, cache: Any = None) -> None: ...


class Earlier:
    def forward(self, input_ids: Any, past_key_values: Any = None) -> None: ...


class State:
    def forward(self, input_ids: Any, cache_params: Any = None) -> None: ...


class Without:
    def forward(self, input_ids: Any) -> None: ...


class Derived(Earlier):
    def forward(self, *given: Any, **others: Any) -> None: ...


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Present, "cache"),
        (Earlier, "past_key_values"),
        (State, "cache_params"),
        (Derived, "past_key_values"),
        (Without, None),
    ],
)
def test_the_name_is_the_first_that_is_stated(kind: type, name: str | None) -> None:
    assert cache_name(kind()) == name


def test_the_cache_of_an_output_is_found_under_any_of_them() -> None:
    assert cache_of(SimpleNamespace(past_key_values="old")) == "old"
    assert cache_of(SimpleNamespace(cache="new", past_key_values="old")) == "new"
    assert cache_of(SimpleNamespace(logits=1)) is None

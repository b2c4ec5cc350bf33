"""The name by which a model takes and gives its cache: it depends on the model, and on the version
of transformers."""

import inspect
from typing import Any

NAMES = ("cache", "past_key_values", "cache_params", "state")
"""Names in use, the present one first; earlier versions know only the others."""


def cache_name(model: Any) -> str | None:
    """The name of a model's argument for its cache, or None, by the first `forward` that states
    one: a derived class may pass it on unseen."""
    kinds = [kind for kind in type(model).__mro__ if "forward" in vars(kind)]
    for parameters in (inspect.signature(vars(kind)["forward"]).parameters for kind in kinds):
        for name in NAMES:
            if name in parameters:
                return name
    return None


def cache_of(output: Any) -> Any:
    """The cache that a model gives with its output, or None."""
    given = (getattr(output, name, None) for name in NAMES)
    return next((one for one in given if one is not None), None)

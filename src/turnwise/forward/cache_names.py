"""The name by which a model takes and gives its cache: it depends on the model, and on the version
of transformers."""

import inspect
from typing import Any

NAMES = ("cache", "past_key_values", "cache_params", "state")
"""Names in use, the present one first; earlier versions know only the others."""


def cache_name(model: Any) -> str | None:
    """The name of a model's argument for its cache, by the first `forward` that states one: a class
    that is derived may pass it on unseen. None where there is none."""
    kinds = [kind for kind in type(model).__mro__ if "forward" in vars(kind)]
    for parameters in (inspect.signature(vars(kind)["forward"]).parameters for kind in kinds):
        for name in NAMES:
            if name in parameters:
                return name
    return None


def cache_of(output: Any) -> Any:
    """The cache that a model gives with its output; None where it gives none."""
    given = (getattr(output, name, None) for name in NAMES)
    return next((one for one in given if one is not None), None)

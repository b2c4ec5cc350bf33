"""Makes the method that a recipe names."""

from functools import partial
from typing import Any, cast

from turnwise.errors import ConfigError
from turnwise.options import checked_options
from turnwise_synthesis.items import METHODS, Material, Method


def make_method(material: Material) -> Method:
    """The method with its options. Raises ConfigError, in one line, for a name or an option that
    stands for nothing, and what the method itself raises."""
    settings = material.settings
    make: partial[Method] = partial(cast(Any, METHODS.get(settings.method)), material)
    try:
        options = checked_options(make, settings.options, "synthesis.options")
    except ConfigError as error:
        raise ConfigError(f"synthesis.method {settings.method}: {error}") from None
    return make(**options)


def fixed_settings(material: Material) -> dict[str, Any]:
    """All that items follow from: those of a folder have it in common."""
    recipe, settings = material.recipe, material.settings
    fixed = settings.model_dump(mode="json", exclude={"items", "max_refused_share"})
    return fixed | {"environment": recipe.environment.model_dump(mode="json")}

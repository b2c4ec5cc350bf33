"""Sandboxes of whichever kind works on this machine."""

from typing import Any

import pytest

from turnwise.errors import ConfigError


def working(sandbox: Any) -> Any:
    """The sandbox; a skip where it does not work."""
    try:
        sandbox.tier  # noqa: B018
    except ConfigError as error:
        pytest.skip(str(error))
    return sandbox

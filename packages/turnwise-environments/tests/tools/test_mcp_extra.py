"""Without the package mcp: the error names the extra that brings it."""

import sys

import pytest

from turnwise.errors import MissingExtraError
from turnwise_environments.tools.mcp import McpServer


def test_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtraError, match=r"turnwise\[mcp\]"):
        McpServer(url="http://localhost:1/mcp")

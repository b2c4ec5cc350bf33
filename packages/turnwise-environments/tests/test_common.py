"""Small things that several environments need."""

import sys
from pathlib import Path

import pytest

from turnwise.environments.registry import make_environment
from turnwise.errors import MissingExtraError
from turnwise_environments.common import check_installed
from turnwise_environments.tools.mcp import McpServer

NEEDED = {
    "frozen_lake": ("gymnasium", "games", {}),
    "gymnasium": ("gymnasium", "games", {"id": "Taxi-v4", "success": 1}),
    "inspect": ("inspect_ai", "inspect", {"task": "mine.py:a"}),
    "openenv": ("websockets", "openenv", {"url": "http://127.0.0.1:1"}),
    "reasoning_gym": ("reasoning_gym", "reasoning-gym", {"datasets": "word_ladder"}),
    "textworld": ("textworld", "textworld", {}),
    "verifiers": ("verifiers", "verifiers", {"taskset": "mine.py:A"}),
    "web_forms": ("playwright", "browser", {"pages": "browser"}),
}


@pytest.mark.parametrize("name", NEEDED)
def test_a_missing_package_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, extra, options = NEEDED[name]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'turnwise\[{extra}\]'"):
        make_environment(name, options)


def test_lakes_that_were_drawn_do_not_hide_a_missing_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_environment("frozen_lake", {"maps": 2})
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingExtraError, match="gymnasium"):
        make_environment("frozen_lake", {"maps": 2})


def test_a_missing_mcp_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtraError, match=r"turnwise\[mcp\]"):
        McpServer(url="http://localhost:1/mcp")


def test_a_folder_of_a_package_s_name_is_not_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "some_games").mkdir()
    (tmp_path / "some_games" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtraError, match="some-games is not installed"):
        check_installed("some-games", "games")

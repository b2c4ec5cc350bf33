"""`turnwise evaluate --model-url`: figures, refusals, and a key that stays where it is."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chat_server import serving
from tests.commands.shell import Shell

RECIPE = """
name = "mine"
[environment]
name = "tests.fakes:Capitals"
[rollout]
max_turns = 3
[evaluation]
tasks = 2
temperature = 0.25
[evaluation.prices]
tool_call = 1.0
[reward]
failure = -0.5
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def tokyo(body: dict[str, Any], number: int) -> str:
    return "Tokyo"


def test_figures(recipe: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "sk-secret")
    address = ("--model-name", "m", "--key-variable", "A_KEY")
    option = ("--model-option", "reasoning.effort=low", "--model-option", "max_tokens=99")
    with serving(tokyo) as server:
        server.usage = {"prompt_tokens": 10, "completion_tokens": 2}
        told = shell("evaluate", recipe, "--model-url", server.url, *address, *option, "--json")
        found = told.json
        table = shell("evaluate", recipe, "--model-url", server.url, *address).out
    assert (found["success"], found["n"], found["ungraded"]) == (0.5, 2, 0)
    assert 0 < found["low"] < 0.5 < found["high"] < 1
    assert found["outcomes"] == {"failure": 1, "success": 1}
    assert found["tokens_sampled"] is None
    assert found["tokens_per_success"] is None
    assert set(found["budgets"]) == {"tool_calls", "turns"}
    assert "cost" not in found
    asked = {"requests": 2, "read": 20, "written": 4}
    assert found["endpoint"] == {"url": server.url, "model": "m", **asked}
    assert any("[reward] is left out" in caution for caution in found["cautions"])
    assert server.asked[0]["reasoning"] == {"effort": "low"}
    assert (server.asked[0]["temperature"], server.asked[0]["max_tokens"]) == (0.25, 99)
    assert set(server.headers) == {"Bearer sk-secret"}
    assert "50.0%" in table
    assert "2 requests; 20 tokens read, 4 written" in table
    assert "sk-secret" not in json.dumps(found) + table


def test_an_endpoint_that_refuses_stops_it(recipe: Path, shell: Shell) -> None:
    with serving(tokyo) as server:
        server.failures = [401] * 9
        given = ("--model-url", server.url, "--model-name", "m")
        failed = shell("evaluate", recipe, *given, code=3)
    assert "2 of 2 episodes could not be graded (2 infrastructure_model)" in failed.err
    assert "401" in failed.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model-url", "http://h/v1"), "model is empty"),
        (("--model-name", "m"), "url '': write http://host:port/v1"),
        (("--model-url", "http://me:pw@h/v1", "--model-name", "m"), "give keys by --key-variable"),
        (
            ("--model-url", "http://h/v1", "--model-name", "m", "--key-variable", "NO_SUCH_KEY"),
            "there is no environment variable NO_SUCH_KEY",
        ),
        (
            ("--model-url", "http://h/v1", "--model-name", "m", "--model-option", "stream=true"),
            "--model-option stream is turnwise's own to say",
        ),
        (("--model-url", "http://h/v1", "--model-name", "m", "--out", "x"), "leave out --out"),
        (("--model-url", "http://h/v1", "--model-name", "m", "evaluation.tasks=0"), "nothing to"),
    ],
)
def test_refusals(arguments: tuple[str, ...], message: str, recipe: Path, shell: Shell) -> None:
    assert message in shell("evaluate", recipe, *arguments, code=2).err

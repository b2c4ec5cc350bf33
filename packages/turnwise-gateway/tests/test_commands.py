"""`engine = "openai"`: figures, refusals, episodes that are kept, a key that stays where it is; and
`agent check`: the account of an agent's episode, as it is printed and as a run keeps it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chat_server import serving
from tests.commands.shell import Shell
from tests.small_runs import write_recipe
from turnwise.config import load_recipe
from turnwise.storage.audits import audits, read_audit
from turnwise.storage.run_folder import RunFolder

KEY = "sk-secret-0815"
RECIPE = """
name = "mine"
environment.name = "tests.fakes:Capitals"
engine = { name = "openai", url = "http://127.0.0.1:9/v1", model = "m" }
rollout.max_turns = 3
evaluation = { tasks = 2, temperature = 0.25, prices = { tool_call = 1.0 } }
reward.failure = -0.5
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE)
    return path


def tokyo(body: dict[str, Any], number: int) -> str:
    return "Tokyo"


def test_figures(
    recipe: Path, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", KEY)
    fields = ("engine.request.reasoning.effort=low", "engine.request.max_tokens=99")
    with serving(tokyo) as server:
        server.usage = {"prompt_tokens": 10, "completion_tokens": 2}
        given = (f"engine.url={server.url}", "engine.key_variable=A_KEY", *fields)
        found = shell("evaluate", recipe, *given, "--json").json
        table = shell("evaluate", recipe, *given, "--out", tmp_path / "kept").out
    (same,) = shell("compare-runs", tmp_path / "kept", tmp_path / "kept", "--json").json
    assert (same["pairs"], same["difference"]) == (2, 0)
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
    assert set(server.headers) == {f"Bearer {KEY}"}
    assert "50.0%" in table
    assert "2 requests; 20 tokens read, 4 written" in table
    assert KEY not in json.dumps(found) + table


def test_episodes_are_kept_as_words_and_the_key_is_not(
    recipe: Path, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the episodes fails, by an error in which the endpoint repeats the key."""
    monkeypatch.setenv("A_KEY", KEY)
    folder = tmp_path / "kept"
    limits = ("rollout.max_ungraded_share=0.5", "engine.max_concurrent_episodes=1")
    with serving(lambda _, number: KEY if number == 1 else "Tokyo") as server:
        server.failures = [401]  # whose body repeats the key
        given = (f"engine.url={server.url}", "engine.key_variable=A_KEY", *limits)
        made = shell("evaluate", recipe, *given, "--out", folder)
    kept = RunFolder.open(folder)
    (rows,) = kept.trajectory_files()
    assert kept.evaluation("evaluated")["ungraded"] == 1
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert {rows, folder / "report.md", folder / "config.toml"} <= set(files)
    assert not [file for file in files if KEY.encode() in file.read_bytes()]
    assert KEY not in made.out + made.err
    assert 'key_variable = "A_KEY"' in (folder / "config.toml").read_text()
    shown = " ".join(shell("show", folder).out.split())
    assert "«Tokyo»" in shown
    assert "1 held-out tasks" in shown
    assert "words and no tokens" in shell("show", folder, "--tokens", code=2).err


def test_an_endpoint_that_refuses_stops_it(recipe: Path, shell: Shell) -> None:
    with serving(tokyo) as server:
        server.failures = [401] * 9
        failed = shell("evaluate", recipe, f"engine.url={server.url}", code=3)
    assert "2 of 2 episodes could not be graded (2 infrastructure_model)" in failed.err
    assert "401" in failed.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("engine.model=",), "model is empty"),
        (("engine.url=localhost:8000",), "url 'localhost:8000': write http://host:port/v1"),
        (("engine.url=http://me:pw@h/v1",), "give keys by engine.key_variable"),
        (("engine.key_variable=NO_SUCH_KEY",), "there is no environment variable NO_SUCH_KEY"),
        (("engine.request.stream=true",), "engine.request.stream is turnwise's own to say"),
        (("engine.request.api_key=sk",), "would be written down: give engine.key_variable"),
        (("engine.deterministic=true",), "engine.deterministic goes with"),
        (("evaluation.tasks=0",), "nothing to"),
        pytest.param(
            ("--inject", "error=0.5"), "without --inject", marks=pytest.mark.wing("studies")
        ),
        (("agent=agent.py:run",), "leave agent out"),
    ],
)
def test_refusals(arguments: tuple[str, ...], message: str, recipe: Path, shell: Shell) -> None:
    assert message in shell("evaluate", recipe, *arguments, code=2).err


def test_nothing_is_trained_with_it(recipe: Path, shell: Shell, tmp_path: Path) -> None:
    refused = shell("train", recipe, "reward=false", "--run", tmp_path / "run", code=2).err
    assert "which tokens were sampled" in refused
    assert "choose embedded or vllm" in " ".join(refused.split())
    assert not (tmp_path / "run" / "config.toml").exists()


AGENT = """
async def run(task, model):
    reply = await model.chat([{"role": "user", "content": task.prompt}])
    return reply["choices"][0]["message"]["content"]
"""
TABLES = """
rollout = { max_turns = 2, max_turn_tokens = 8, max_tokens = 200 }
"""


def test_a_run_keeps_the_account_of_an_agent(shell: Shell, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, "Letters", TABLES)
    folder = RunFolder.new(tmp_path / "run")
    folder.begin(load_recipe(str(recipe), []))
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT)
    shown = shell("agent", "check", "--run", folder.path, "--", f"{agent}:run").out
    assert audits(folder.path) == {"agent-0": "The agent, on the held-out task 0"}
    found = {one.check: one for one in read_audit(folder.path, "agent-0")["findings"]}
    assert found["How it ended"].note in shown
    assert found["Agent"].note == f"{agent}:run"
    assert found["Turns"].figure == 1
    assert found["Calls by dialect"].note == "chat_completions 1"
    assert found["Tokens sampled"].figure in range(1, 9)  # a turn of the run's own recipe


@pytest.mark.long
@pytest.mark.parametrize("asks", [True, False])
def test_an_agent_that_raises_is_no_success(shell: Shell, tmp_path: Path, asks: bool) -> None:
    recipe = write_recipe(tmp_path, "Letters", TABLES)
    agent = tmp_path / "agent.py"
    lines = AGENT.splitlines()
    agent.write_text("\n".join([*lines[: 3 if asks else 2], "    raise ValueError('oh')"]))
    command = "agent", "check", "--recipe", recipe, "--", f"{agent}:run"
    shown = shell(*command, code=1).out
    assert "ValueError: oh" in shown
    assert ("(100%)" in shown) == asks

"""The account of an agent's episode, as it is printed and as a run keeps it."""

from pathlib import Path

import pytest

from tests.commands.shell import Shell
from tests.small_runs import write_recipe
from turnwise.config import load_recipe
from turnwise.storage.audits import audits, read_audit
from turnwise.storage.run_folder import RunFolder

AGENT = """
async def run(task, model):
    reply = await model.chat([{"role": "user", "content": task.prompt}])
    return reply["choices"][0]["message"]["content"]
"""
TABLES = """
[rollout]
max_turns = 2
max_turn_tokens = 8
max_tokens = 200
"""


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def test_a_run_keeps_the_account_of_an_agent(shell: Shell, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, "Letters", TABLES)
    folder = RunFolder.new(tmp_path / "run")
    folder.begin(load_recipe(str(recipe), []))
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT)
    shown = shell(
        "agent", "check", "--run", folder.path, "--recipe", recipe, "--", f"{agent}:run"
    ).out
    assert audits(folder.path) == {"agent-0": "The agent, on the held-out task 0"}
    found = {one.check: one for one in read_audit(folder.path, "agent-0")["findings"]}
    assert found["How it ended"].note in shown
    assert found["Agent"].note == f"{agent}:run"
    assert found["Turns"].figure == 1
    assert found["Calls by dialect"].note == "chat_completions 1"
    assert found["Tokens sampled"].figure is not None


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

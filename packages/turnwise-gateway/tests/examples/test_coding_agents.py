"""Command-line coding agents play `examples/agents/coding.py`, with a policy that does the right
thing: the programs themselves, where they are installed (or named by a variable, such as
`TURNWISE_TEST_CODEX=/tmp/codex/node_modules/.bin/codex`)."""

import os
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway_tests.playing import group_of
from tests.scaffolds.families import family_tokenizer
from turnwise.config import RolloutConfig, ScaffoldConfig, load_recipe
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.registry import make_environment
from turnwise.tokens import Source
from turnwise.types import Action, Outcome, ToolCall, Trajectory
from turnwise_gateway.agent_episode import make_host
from turnwise_gateway.checking import forks
from turnwise_gateway.settings import CommandAgent

pytest.importorskip("uvicorn")
pytest.importorskip("renderers", reason="needs the extra renderers", exc_type=ImportError)
ROOT = Path(__file__).parents[4]
TOKENIZER = family_tokenizer("qwen3")
SCAFFOLD = pytest.importorskip("turnwise_environments.scaffolds.renderers").RenderersScaffold(
    TOKENIZER, [], "qwen3"
)
LIMITS = RolloutConfig(max_turns=9, max_turn_tokens=900, max_tokens=150_000, max_seconds=120)
SHELLS = {
    "claude": ("Bash", "command"),
    "codex": ("exec_command", "cmd"),
    "mini": ("bash", "command"),
}
WRITE = """cat > solution.py <<'END'
def vowels(text):
    return sum(letter in "aeiou" for letter in text)
END
python3 -c "import solution; print(solution.vowels('banana'))" """
PAGE = (ROOT / "docs/start/own_agent.md").read_text()


def commands() -> dict[str, list[str]]:
    """The command lines of the page, by program."""
    section = PAGE.partition("## Command-line coding agents")[2]
    blocks = re.findall(r"```toml\n(agent = .*?)```", section, re.DOTALL)
    found = [tomllib.loads(block)["agent"] for block in blocks]
    return {next(name for name in SHELLS if name in " ".join(one)): one for one in found}


@pytest.fixture(params=SHELLS)
def program(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a program that is on the PATH, and finds no settings of anybody's."""
    name: str = request.param
    found = os.environ.get(f"TURNWISE_TEST_{name.upper()}") or shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name}")
    monkeypatch.setenv("PATH", f"{Path(found).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    return name


def shell(program: str, line: str) -> Action:
    tool, argument = SHELLS[program]
    return Action("", "Now I write.", (ToolCall(tool, {argument: line}),))


def play(command: list[str], policy: Callable[[str], Action]) -> Trajectory:
    """One episode; the policy answers what stands in a context."""
    made = make_environment(f"{ROOT}/examples/agents/coding.py:Coding", {})
    engine = ScriptedEngine(
        lambda session, prompt: SCAFFOLD.render(policy(TOKENIZER.decode(prompt)))
    )
    config = ScaffoldConfig(name="renderers", options={"family": "qwen3"})
    host = make_host(CommandAgent(command=tuple(command)), config, TOKENIZER)
    tasks = made.tasks("heldout")
    group = group_of(host, engine, made, LIMITS, tasks=tasks, scaffold=SCAFFOLD)
    return group.trajectories[0]


def check(played: Trajectory) -> None:
    """It succeeded, and each token that the policy wrote is trained."""
    assert played.outcome is Outcome.SUCCESS, played.problem
    assert (played.capture.coverage, played.capture.refused) == (1.0, {})
    assert int(played.tokens.mask.sum()) == played.capture.sampled > 0


def test_the_recipe_and_the_page_have_one_command() -> None:
    recipe = load_recipe(str(ROOT / "examples/agents/coding.toml"), [])
    assert set(commands()) == set(SHELLS)
    assert list(recipe.agent.command) == commands()["claude"]


@pytest.mark.slow
def test_a_file_that_a_program_writes_is_judged(program: str) -> None:
    """What the tool printed stands in the one context, behind the call that the policy wrote."""
    last = Action("", "Done.", answer="It is written.")
    if program == "mini":  # which ends by a command
        last = shell(program, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
    script = iter([shell(program, WRITE), last])
    played = play(commands()[program], lambda shown: next(script))
    check(played)
    assert len(played.tokens.spans) == 1
    results = played.tokens.ids[played.tokens.source == Source.TOOL]
    assert re.search(r"\b3\b", TOKENIZER.decode(results.tolist()))
    assert played.answer == last.answer


@pytest.mark.slow
@pytest.mark.parametrize("program", ["claude", "codex"], indirect=True)
def test_a_sub_agent_has_a_context_of_its_own(program: str) -> None:
    def policy(shown: str) -> Action:
        asked = shown.rpartition("<|im_start|>user")[2]
        if "LOOK AROUND" in asked:
            return Action("", "I look.", answer="Nothing is there.")
        if "Now I send" not in shown:
            return Action("", "Now I send.", (sub_agent(program),))
        if program == "codex" and "Now I wait" not in shown:
            name = re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", asked)[0]
            return Action(
                "", "Now I wait.", (ToolCall(f"{AGENTS}wait_agent", {"targets": [name]}),)
            )
        if "Now I write" not in shown:
            return shell(program, WRITE)
        return Action("", "Done.", answer="It is written.")

    played = play([word for word in commands()[program] if word != "--bare"], policy)
    check(played)
    (fork,) = forks(played.tokens)
    assert 0 < fork.shared < fork.length
    contexts = [TOKENIZER.decode(played.tokens.ids[one].tolist()) for one in played.tokens.spans]
    assert [("Now I write" in one, "I look." in one) for one in contexts] == [
        (False, True),
        (True, False),
    ]
    assert "Nothing is there." in contexts[1]


AGENTS = "multi_agent_v1__"


def sub_agent(program: str) -> ToolCall:
    if program == "codex":
        return ToolCall(f"{AGENTS}spawn_agent", {"message": "LOOK AROUND"})
    asked = {"description": "look", "prompt": "LOOK AROUND", "run_in_background": False}
    return ToolCall("Agent", {**asked, "subagent_type": "claude"})

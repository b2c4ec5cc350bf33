"""An environment as an MCP server, over both transports, with the package's own client."""

import asyncio
import contextlib
import json
import sys
import textwrap
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from environment_playing import verdict_of
from serving_running import A_HANG, FEW, local, running
from tests.fakes import Capitals
from turnwise.config import RolloutConfig
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError
from turnwise.tools.tool import tool
from turnwise.types import Action
from turnwise_environments.serving.mcp import check_mcp, serving_http
from turnwise_environments.serving.offer import Offer
from turnwise_environments.tools.mcp import McpServer

mcp = pytest.importorskip("mcp", reason="mcp is not installed: pip install 'turnwise[mcp]'")

LIMITS = RolloutConfig(max_turns=3, max_tool_calls=2, max_seconds=20)


class Secretive(Capitals):
    """Its verdict's detail has the answer; one tool waits, another raises."""

    closed: list[str] = []

    @tool
    async def wait(self) -> str:
        """Wait."""
        await asyncio.sleep(100)
        return ""

    @tool
    def fall(self) -> str:
        """Fall over."""
        raise RuntimeError("the password is sesame")

    async def verify(self, trajectory: Any) -> Any:
        verdict = await super().verify(trajectory)
        expected = trajectory.task.secret["answers"][0]
        return type(verdict)(verdict.reward, verdict.success, {}, f"expected {expected}")

    async def close(self) -> None:
        type(self).closed.append("")


@contextlib.asynccontextmanager
async def connected(offer: Offer, mode: str = "auto") -> AsyncIterator[Any]:
    """A client of a server in this loop."""
    async with (
        asyncio.timeout(A_HANG),
        serving_http(offer, "127.0.0.1", 0) as url,
        mcp.Client(url, mode=mode) as client,
    ):
        yield client


def text(result: Any) -> str:
    return "\n".join(part.text for part in result.content)


async def play(client: Any, number: int, script: Sequence[Action]) -> list[Any]:
    """The results of a script's calls and answers, the first observation before them."""
    results = [await client.call_tool("begin", {"task": number, "split": "heldout"})]
    for action in script:
        calls = action.calls
        results += [await client.call_tool(call.name, dict(call.arguments)) for call in calls]
        if action.answer is not None:
            results.append(await client.call_tool("finish", {"answer": action.answer}))
    return results


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "options"), [("mathematics", FEW), ("desk", {}), ("sql", FEW), ("frozen_lake", {})]
)
def test_an_episode_is_the_same_as_here(name: str, options: dict[str, Any]) -> None:
    if name == "frozen_lake":
        pytest.importorskip("gymnasium")
    environment = make_environment(name, options)
    tasks, before = environment.tasks("heldout")[:3], dict(vars(environment))

    async def work() -> list[list[Any]]:
        async with connected(Offer(environment)) as client:
            return [
                await play(client, number, environment.oracle(task))
                for number, task in enumerate(tasks)
            ]

    for task, results in zip(tasks, asyncio.run(work()), strict=True):
        here = local(environment, task)
        seen = [here.seen[0], *(entry[0] for entry in here.seen[1:-1])]
        assert [result.content[0].text for result in results] == seen
        told, verdict = results[-1].structured_content, verdict_of(here)
        assert verdict.success
        assert told["reward"] == here.trajectory.reward
        assert (told["success"], told["outcome"]) == (True, "success")
        assert told["parts"] == pytest.approx(dict(verdict.parts))
        assert told["detail"] == verdict.detail
    assert vars(environment) == before, "the prototype is untouched"


async def test_tools_have_their_schemas() -> None:
    environment = Capitals()
    async with connected(Offer(environment)) as client:
        begin, *tools, finish = (await client.list_tools()).tools
    assert (begin.name, finish.name) == ("begin", "finish")
    assert begin.input_schema["required"] == ["task"]
    assert f"train has {len(environment.tasks('train'))}" in begin.description
    own = {one.name: one for one in environment.tools()}
    assert [one.name for one in tools] == list(own)
    for one in tools:
        assert one.input_schema == own[one.name].schema["parameters"]
        assert one.description == own[one.name].description


async def test_what_a_client_does_wrong_is_a_tools_error() -> None:
    async with connected(Offer(Capitals(), LIMITS)) as client:
        call = client.call_tool
        results = [
            await call("lookup", {"country": "Italy"}),
            await call("finish", {}),
            await call("begin", {"task": 2}),
            await call("begin", {"task": 0, "split": "test"}),
            await call("begin", {"number": 0}),
            await call("begin", {"task": 0}),
            await call("lookup", {"country": "Atlantis"}),
            await call("lookup", {"land": "Italy"}),
            await call("finish", {"answer": "Paris"}),
            await call("lookup", {"country": "Italy"}),
            await call("begin", {"task": 1}),
            await call("look", {}),
        ]
    texts = [text(result) for result in results]
    fine = [5, 8, 10]
    assert [place for place, one in enumerate(results) if not one.is_error] == fine
    assert texts[0] == texts[1] == "no episode has begun: begin one first"
    assert texts[2] == "there is no task 2: split train has 2, numbered from 0"
    assert "argument 'split'" in texts[3]
    assert "argument 'task': Field required" in texts[4]
    assert texts[5] == "Capital of France?"
    assert texts[6] == "Error: no country 'Atlantis'"
    assert "argument 'country'" in texts[7]
    assert results[8].structured_content["success"]
    assert texts[9] == "the episode is over: begin another one"
    assert texts[11] == "Error: there is no tool 'look'; tools: lookup"


async def test_limits_secrets_and_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Secretive, "tool_deadline", 0.1)
    monkeypatch.setattr(Secretive, "closed", [])
    async with connected(Offer(Secretive(), LIMITS)) as client:
        call, found = client.call_tool, []
        await call("begin", {"task": 0})
        found.append(await call("finish", {"answer": "Lyon"}))
        await call("begin", {"task": 0})
        await call("lookup", {"country": "France"})
        found.append(await call("finish", {"answer": "Lyon"}))
        await call("begin", {"task": 0})
        found += [await call("lookup", {"country": "Italy"}) for _ in range(3)]
        await call("begin", {"task": 0})
        found.append(await call("wait", {}))
        await call("begin", {"task": 0})
        found.append(await call("fall", {}))
        await call("begin", {"task": 0})
    wrong, looked, *spent, late, broken = found
    assert wrong.structured_content["detail"] == ""
    assert "Paris" not in text(wrong)
    assert looked.structured_content["detail"] == "expected Paris"
    assert [one.structured_content is None for one in spent] == [True, True, False]
    assert spent[2].structured_content["outcome"] == "truncated_tool_calls"
    assert late.structured_content["outcome"] == "agent_resource_limit"
    assert broken.is_error
    assert text(broken).endswith("The episode is over without a grade: infrastructure_step.")
    assert "sesame" not in text(broken)
    assert len(Secretive.closed) == 6


@pytest.mark.long
async def test_episodes_are_bounded_in_number_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Secretive, "closed", [])
    offer = Offer(Secretive(), LIMITS, sessions=1, patience=0.3)
    async with (
        asyncio.timeout(A_HANG),
        serving_http(offer, "127.0.0.1", 0) as url,
        mcp.Client(url) as one,
        mcp.Client(url) as other,
    ):
        await one.call_tool("begin", {"task": 0})
        full = await other.call_tool("begin", {"task": 0})
        while offer.under_way:
            await asyncio.sleep(0.05)
        assert len(Secretive.closed) == 1
        again = await other.call_tool("begin", {"task": 0})
        late = await one.call_tool("finish", {})
    assert text(full) == "1 episodes are under way, no more may be: try later"
    assert not again.is_error
    assert text(late) == "the episode is over: begin another one"


async def test_an_ended_session_gives_its_episode_up() -> None:
    offer = Offer(Capitals())
    async with asyncio.timeout(A_HANG), serving_http(offer, "127.0.0.1", 0) as url:
        async with mcp.Client(url) as client:
            await client.call_tool("begin", {"task": 0})
            assert offer.under_way == 1
        while offer.under_way:
            await asyncio.sleep(0.01)


async def test_without_a_session_there_is_no_episode() -> None:
    """A client that insists on the protocol without sessions."""
    async with connected(Offer(Capitals()), mode="2026-07-28") as client:
        result = await client.call_tool("begin", {"task": 0})
    assert result.is_error
    assert text(result) == "an episode belongs to a session: initialize one first"


def test_our_own_client_lists_the_tools() -> None:
    with running(lambda: serving_http(Offer(Capitals()), "127.0.0.1", 0)) as url:
        names = [schema["name"] for schema in McpServer(url=url).schemas]
    assert names == ["begin", "finish", "lookup"]


class Beginning(Capitals):
    @tool
    def begin(self) -> str:
        """Begin."""
        return ""


def test_a_tool_with_a_name_of_the_servers() -> None:
    with pytest.raises(ConfigError, match="capitals has a tool 'begin' itself"):
        check_mcp(Beginning())


PROGRAM = """
import sys
from turnwise.commands.cli import main
main(["serve-environment", sys.argv[1], "--mcp"])
"""


@pytest.mark.long
async def test_over_standard_input_and_output(tmp_path: Path) -> None:
    """A process, whose tools may print: the wire is not theirs."""
    (tmp_path / "noisy.py").write_text(
        textwrap.dedent("""
            from tests.fakes import Capitals
            from turnwise.tools.tool import tool
            class Noisy(Capitals):
                @tool
                def shout(self) -> str:
                    '''Shout.'''
                    print("noise")
                    return "shouted"
        """)
    )
    program = tmp_path / "serve.py"
    program.write_text(PROGRAM)
    root = str(Path(__file__).parents[4])
    parameters = mcp.StdioServerParameters(
        command=sys.executable,
        args=[str(program), f"{tmp_path / 'noisy.py'}:Noisy"],
        env={"PYTHONPATH": ":".join([root, *sys.path])},
    )

    with (tmp_path / "stderr").open("w") as stderr:
        transport = mcp.stdio_client(parameters, errlog=stderr)
        async with asyncio.timeout(A_HANG), mcp.Client(transport, mode="auto") as client:
            begun = await client.call_tool("begin", {"task": 0, "split": "heldout"})
            shouted = await client.call_tool("shout", {})
            finished = await client.call_tool("finish", {"answer": "Tokyo"})
    assert text(begun) == "Capital of Japan?"
    assert text(shouted) == "shouted"
    assert finished.structured_content["reward"] == 1.0
    assert json.loads(json.dumps(finished.structured_content))["outcome"] == "success"
    said = (tmp_path / "stderr").read_text()
    assert "serving capitals as an MCP server at standard input and output" in said
    assert "Traceback" not in said

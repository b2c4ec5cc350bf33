"""What the gateway costs: episodes of agents at once, against turnwise's own loop; and leaks.

    .venv/bin/python benchmarks/gateway.py --out gateway.json

An engine that says at once what a script has, so that only the way to it is measured: rendering,
contexts, records, and for the gateway HTTP and JSON as well. The client speaks HTTP by hand, since
clients of others take longer than the gateway. Not here: what a model's sampling takes.
"""

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from turnwise.config import ModelConfig, RolloutConfig, ScaffoldConfig
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.base import Environment
from turnwise.models.load import load_tokenizer
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.rollout.runner import RolloutRunner
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.tools.tool import tool
from turnwise.types import Action, Task, ToolCall, Trajectory, Verdict
from turnwise_gateway.agent_episode import make_host
from turnwise_gateway.settings import FunctionAgent

CALLS = 3
"""Tool calls of an episode; then comes the answer."""
SEARCH = {
    "name": "search",
    "description": "Search.",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
}


class Searches(Environment):
    """Asks for three searches and an answer."""

    @tool
    def search(self, query: str) -> str:
        """Search."""
        return f"Nothing is known of {query}."

    async def verify(self, trajectory: Trajectory) -> Verdict:
        return Verdict(1.0, trajectory.answer == "done")


async def run(task: Task, model: Any) -> str:
    """The agent, over HTTP."""
    messages: list[Any] = [{"role": "user", "content": task.prompt}]
    place, path = model.base_url.removeprefix("http://").split("/", 1)
    host, port = place.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        while True:
            asked = {"model": model.name, "messages": messages}
            body = json.dumps(asked | {"tools": [{"type": "function", "function": SEARCH}]})
            head = f"POST /{path}/chat/completions HTTP/1.1\r\nhost: {place}"
            writer.write(f"{head}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
            headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(headers.split("content-length: ")[1].split("\r")[0])
            message = json.loads(await reader.readexactly(length))["choices"][0]["message"]
            if not message.get("tool_calls"):
                return str(message["content"])
            messages.append(message)
            for call in message["tool_calls"]:
                query = json.loads(call["function"]["arguments"])["query"]
                found = f"Nothing is known of {query}."
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": found})
    finally:
        writer.close()


class Bench:
    """A runner with the gateway and one without, over one engine."""

    def __init__(self) -> None:
        tokenizer = load_tokenizer(ModelConfig())
        environment, config = Searches(), ScaffoldConfig(options={"instructions": ""})
        scaffold = TagsScaffold(tokenizer, environment.tools(), instructions="")
        call = scaffold.render(Action("", "Hm.", (ToolCall("search", {"query": "x"}),)))
        answer = scaffold.render(Action("", "Yes.", answer="done"))
        self._turns: dict[str, int] = {}

        def policy(session: str, prompt: list[int]) -> list[int]:
            count = self._turns[session] = (self._turns.get(session, -1) + 1) % (CALLS + 1)
            return answer if count == CALLS else call

        self.host = make_host(FunctionAgent(run=f"{__file__}:run"), config, tokenizer)
        limits = RolloutConfig(max_turns=CALLS + 1, max_turn_tokens=200, max_tokens=2000)
        self.own = RolloutRunner(
            environment, scaffold, ScriptedEngine(policy), limits, PrioritySemaphore(100_000)
        )

    async def play(self, episodes: int, gateway: bool) -> tuple[float, float]:
        """Seconds, and seconds of the processor, for so many episodes at once."""
        runner = self.own
        if gateway:
            runner = replace(runner, host=self.host)
        begun, used = time.monotonic(), time.process_time()
        (group,) = await runner.collect([Task("a", "Search.")], episodes, 0, "bench")
        assert all(one.reward == 1.0 for one in group.trajectories)
        return time.monotonic() - begun, time.process_time() - used


def held() -> dict[str, int]:
    """What the process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    threads = Path("/proc/self/status").read_text().split("Threads:")[1].split()[0]
    return {
        "MiB": pages * resource.getpagesize() // 2**20,
        "files": len(os.listdir("/proc/self/fd")),
        "threads": int(threads),
        "children": len(children),
    }


async def measure(at_once: int, rounds: int, sessions: int) -> dict[str, Any]:
    bench = Bench()
    turns = at_once * (CALLS + 1)
    await bench.play(50, True)
    await bench.play(50, False)
    times: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for _ in range(rounds):
        for gateway in times:
            times[gateway].append(await bench.play(at_once, gateway))
    found: dict[str, Any] = {"processor": platform.processor() or platform.machine()}
    for gateway, name in ((True, "gateway"), (False, "own loop")):
        wall, used = zip(*times[gateway], strict=True)
        found[name] = {
            "seconds": statistics.median(wall),
            "microseconds of the processor a turn": 1e6 * statistics.median(used) / turns,
        }
    found["held"] = [held()]
    for _ in range(10):
        for _ in range(sessions // 10 // at_once):
            await bench.play(at_once, True)
        found["held"].append(held())
    await bench.host.gateway.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = asyncio.run(measure(given.at_once, given.rounds, given.sessions))
    text = json.dumps(found, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text)


if __name__ == "__main__":
    main()

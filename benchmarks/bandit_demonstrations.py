"""The demonstrations of the recipe `bandit`: pulls at random, as conversations.

    .venv/bin/python benchmarks/bandit_demonstrations.py bandit_demonstrations.jsonl

Nobody can know which machine is which before a pull, so the environment has no oracle, and the
recipe's cold start imitates this file: it teaches how to pull, and nothing about when. Not here:
demonstrations by an oracle (`turnwise.rollout.demonstrations`).
"""

import argparse
import asyncio
import json
import random
from itertools import islice
from pathlib import Path
from typing import Any

from turnwise.seeds import derive
from turnwise.types import Action, Task, ToolCall
from turnwise_environments.games.bandit import Bandit

EPISODES, PULLS = 120, 5


def main() -> None:
    """Play the episodes and write them, one a line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    bandit = Bandit(pulls=PULLS, count=EPISODES)
    tasks = islice(bandit.tasks("train"), EPISODES)
    lines = [json.dumps({"messages": asyncio.run(played(bandit, task))}) for task in tasks]
    parser.parse_args().file.write_text("".join(f"{line}\n" for line in lines))


async def played(bandit: Bandit, task: Task) -> list[dict[str, Any]]:
    """One episode, each pull that of an arm drawn at random, as messages."""
    stream = random.Random(derive("bandit demonstrations", task.id))
    game = bandit.fresh()
    first = await game.reset(task, derive("bandit demonstrations", task.id, "pay"))
    messages: list[dict[str, Any]] = [{"role": "user", "content": first.content}]
    for number in range(PULLS):
        arm = stream.choice(task.data["names"])
        step = await game.step(Action("", "", (ToolCall("pull", {"arm": arm}),)))
        assert step.observation is not None
        function = {"name": "pull", "arguments": json.dumps({"arm": arm})}
        call = {"id": str(number), "type": "function", "function": function}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        told = step.observation.content
        messages.append({"role": "tool", "tool_call_id": str(number), "content": told})
    return messages


if __name__ == "__main__":
    main()

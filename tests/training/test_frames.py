"""From the command line to the agent loop: how many functions are entered on the way."""

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import turnwise
from tests.small_runs import write_recipe
from turnwise.commands import cli
from turnwise.rollout.episode import Episode

TABLES = """
rollout = { max_turns = 1, max_turn_tokens = 4, max_tokens = 200 }
train = { steps = 1, tasks_per_step = 2, group_size = 2 }
evaluation = { tasks = 0 }
"""
PACKAGE = Path(turnwise.__file__).parent
PATH = ["train", "run", "run", "sample", "collect", "run"]
"""The command, a run's stages, the stage of RL, a step, its groups, the agent loop."""


def frames(frame: FrameType | None) -> list[str]:
    """Functions of turnwise that are entered now in this task, the outermost first."""
    found: list[str] = []
    while frame is not None and frame.f_code is not asyncio.Handle._run.__code__:
        if PACKAGE in Path(frame.f_code.co_filename).parents:
            found.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return found[::-1]


def test_six_frames_lead_to_the_agent_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task of asyncio stands for the functions that were entered where it was made."""
    before: dict[Any, list[str]] = {}
    paths: list[list[str]] = []
    make_loop = asyncio.new_event_loop

    def made(
        loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
    ) -> Any:
        task = asyncio.Task(work, loop=loop, **options)
        current = asyncio.current_task(loop) if loop.is_running() else None
        before[task] = before.get(current, []) + frames(sys._getframe(1))
        return task

    def counting_loop() -> asyncio.AbstractEventLoop:
        loop = make_loop()
        loop.set_task_factory(made)
        return loop

    entered = Episode._begin

    async def begin(self: Episode) -> None:
        current = asyncio.current_task()
        path = before[current] + frames(sys._getframe(1))
        if self.planned.group.startswith("train/"):
            paths.append(path)
        await entered(self)

    monkeypatch.setattr(asyncio, "new_event_loop", counting_loop)
    monkeypatch.setattr(asyncio.events, "new_event_loop", counting_loop)
    monkeypatch.setattr(Episode, "_begin", begin)
    recipe = write_recipe(tmp_path, "Capitals", TABLES)
    with pytest.raises(SystemExit):
        cli.main(["train", str(recipe), "--run", str(tmp_path / "run")])
    assert len(paths) == 4
    for path in paths:
        names = [name.rpartition(".")[2] for name in path if name != "main"]
        assert names == PATH

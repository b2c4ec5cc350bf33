"""The agent loop with a person in the policy's place: the same episode, another engine."""

import json
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turnwise.config import Recipe
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.registry import environment_of
from turnwise.errors import ConfigError, DataError, UserError
from turnwise.models.load import load_tokenizer
from turnwise.monitor.display import Console, visible
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.rollout.runner import RolloutRunner
from turnwise.scaffolds.base import Scaffold
from turnwise.scaffolds.registry import make_scaffold
from turnwise.tools.tool import Tool
from turnwise.types import Action, ToolCall, Trajectory

PATIENCE = 3600.0
"""Seconds a person has for an episode."""


async def play_episode(recipe: Recipe, number: int, console: Console) -> Trajectory:
    """Play the held-out task with that number, and print the verdict. Raises DataError for a number
    without a task."""
    environment = environment_of(recipe)
    if environment.shows_images:
        raise ConfigError(
            f"environment {environment.spec.name} shows images, and a terminal words: set "
            'environment.options.observations = "text"'
        )
    tasks = environment.tasks("heldout")
    if number >= len(tasks):
        raise DataError(f"there are {len(tasks)} held-out tasks, numbered from 0")
    tokenizer = load_tokenizer(recipe.model)
    scaffold = make_scaffold(recipe.scaffold, tokenizer, environment.tools())
    console.print(
        how_to_act(scaffold, environment.tools(), tokenizer.decode), style="dim", markup=False
    )
    shown: list[int] = []

    def ask(session: str, prompt: list[int]) -> Sequence[int]:
        nonlocal shown
        del session
        known = len(shown) if prompt[: len(shown)] == shown else 0  # a new context is shown whole
        console.print(visible(tokenizer.decode(prompt[known:])), style="cyan", markup=False)
        ends = " or ".join(end.strip() for end in scaffold.stop)
        console.print(f"End your turn with {ends}", style="dim")
        try:
            line = _typed()
        except EOFError:
            raise UserError("the input ended before the episode did") from None
        typed = tokenizer(line, add_special_tokens=False)["input_ids"]
        said = list(typed)[: recipe.rollout.max_turn_tokens]
        shown = [*prompt, *said]
        return said

    limits = recipe.rollout.model_copy(update={"max_seconds": PATIENCE})
    runner = RolloutRunner(environment, scaffold, ScriptedEngine(ask), limits, PrioritySemaphore(1))
    try:
        (group,) = await runner.collect([tasks[number]], 1, recipe.seed, "play")
    except* _Left:
        raise KeyboardInterrupt from None
    trajectory = group.trajectories[0]
    detail = trajectory.verdict.detail if trajectory.verdict else trajectory.problem
    console.print(
        f"{trajectory.outcome}, reward {trajectory.reward}: {detail}", style="bold", markup=False
    )
    return trajectory


class _Left(Exception):
    """The person has typed Ctrl-C."""


def _typed() -> str:
    """A line of the person's. The event loop would put Ctrl-C off until the line is there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input("> ")
    except KeyboardInterrupt:
        raise _Left from None
    finally:
        signal.signal(signal.SIGINT, before)


def how_to_act(
    scaffold: Scaffold, tools: Sequence[Tool], decode: Callable[[list[int]], str]
) -> str:
    """Describe the tools, and how a scaffold writes a call of the first one and an answer."""
    lines = ["Tools:", *(f"  {_signature(tool)}" for tool in tools)] if tools else ["No tools."]
    written = {"An answer": Action("", "a thought", answer="the answer")}
    if tools:
        fields = tools[0].schema["parameters"].get("properties", {})
        call = ToolCall(tools[0].name, {name: _sample(field) for name, field in fields.items()})
        written = {"A call": Action("", "a thought", (call,)), **written}
    for what, action in written.items():
        lines += [f"{what} is written so:", f"  {decode(scaffold.render(action)).strip()}"]
    return "\n".join(lines)


def _signature(tool: Tool) -> str:
    fields = tool.schema["parameters"].get("properties", {})
    kinds = ", ".join(f"{name}: {_kind(field)}" for name, field in fields.items())
    return f"{tool.name}({kinds}): {tool.schema['description']}"


def _kind(field: Mapping[str, Any]) -> str:
    """Say what an argument may be: `"up" | "down"`, `integer | null`, `array of string`."""
    if "enum" in field or "const" in field:
        return " | ".join(json.dumps(one) for one in field.get("enum", [field.get("const")]))
    if "anyOf" in field:
        return " | ".join(map(_kind, field["anyOf"]))
    inner = f" of {_kind(field['items'])}" if field.get("items") else ""
    return f"{field.get('type', 'any')}{inner}"


def _sample(field: Mapping[str, Any]) -> object:
    """An argument of the type that a parameter has, to show where it goes."""
    samples = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
    if "enum" in field or "const" in field:
        return field.get("enum", [field.get("const")])[0]
    return (
        _sample(field["anyOf"][0]) if "anyOf" in field else samples.get(str(field.get("type")), "…")
    )

"""The command `agent check`: one episode of an agent, and an account of all that it asked for."""

import asyncio
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

from turnwise.commands.evaluating import AsJson
from turnwise.commands.printing import print_json, print_line, print_table
from turnwise.config import Recipe, load_recipe
from turnwise.errors import ConfigError, DataError
from turnwise.tokens import Tokens
from turnwise.types import Outcome, Trajectory
from turnwise_gateway.settings import AgentConfig, CommandAgent, FunctionAgent, RemoteAgent

if TYPE_CHECKING:
    from turnwise.parts.first_checks import Known
    from turnwise.storage.audits import Finding

app = typer.Typer(help="Agents of your own, which talk to the policy.", no_args_is_help=True)
AROUND = 12
"""Tokens that are shown of a context from where it parts from another."""


@dataclass(frozen=True)
class Check:
    outcome: str
    reward: float | None
    problem: str
    counts: Mapping[str, Any]
    forks: list[str]
    """Where each context parts from an earlier one, in a sentence."""

    @property
    def ending(self) -> str:
        reward = "no reward" if self.reward is None else f"reward {self.reward:g}"
        return f"{self.outcome}, {reward}{f': {self.problem}' if self.problem else ''}"


@app.command()
def check(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="The agent, after `--`: a program with its arguments, or path/to/file.py:run. "
            "The recipe's if not given."
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="A recipe, for the task, the model and the scaffold: the run's, or demo, if not "
            "given."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A change of the recipe, as in rollout.max_turns=20."),
    ] = None,
    task: Annotated[int, typer.Option(min=0, help="Number of the held-out task.")] = 0,
    run: Annotated[
        Path | None, typer.Option(help="A run folder that keeps the account, for `view`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let an agent play one held-out task, and say what it asked for: calls by dialect, contexts
    and where they part, which sampled tokens would be trained, and what had no bearing. The exit
    code is 1 where the agent raised, or the episode has no grade."""
    from turnwise.parts.first_checks import configure, known_of
    from turnwise.storage.audits import write_audit
    from turnwise.storage.run_folder import RunFolder

    folder = None if run is None else RunFolder.open(run)
    recipe = recipe or ("demo" if run is None else str(run / "config.toml"))
    loaded = load_recipe(recipe, [*(settings or []), *_agent(command or [])])
    if loaded.find(AgentConfig) is None:
        raise ConfigError("give the agent after --, as in: turnwise agent check -- node agent.mjs")
    known = known_of(loaded)  # before a model library is imported
    configure(loaded)
    found = asyncio.run(_check(loaded, known, task))
    if folder is not None:
        title = f"The agent, on the held-out task {task}"
        write_audit(folder, f"agent-{task}", title, _findings(found))
    if as_json:
        print_json(vars(found))
    else:
        table = Table("", "", show_header=False)
        for name, value in found.counts.items():
            table.add_row(name, str(value))
        print_table(table)
        for sentence in [*found.forks, found.ending]:
            print_line(sentence)
    if Outcome(found.outcome).family not in ("success", "failure", "truncated"):
        raise typer.Exit(1)


def _findings(check: Check) -> Iterator["Finding"]:
    """The account as an audit has it: numbers as figures, all else in words."""
    from turnwise.storage.audits import Finding

    yield Finding("How it ended", check.reward, note=check.ending)
    for name, value in check.counts.items():
        words = name.capitalize()
        yield Finding(words, value) if isinstance(value, int) else Finding(words, note=value)
    for sentence in check.forks:
        yield Finding("Where contexts part", note=sentence)


def _agent(command: list[str]) -> list[str]:
    if not command:
        return []
    if len(command) == 1 and ".py:" in command[0]:
        return [f"agent={json.dumps(command[0])}"]
    return [f"agent={json.dumps(command)}"]


async def _check(recipe: Recipe, known: "Known", number: int) -> Check:
    from turnwise.parts.components import build_components
    from turnwise.rollout.runner import new_member
    from turnwise_gateway.agent_episode import AgentEpisode

    parts = build_components(recipe, known=known)
    try:
        tasks = parts.environment.tasks("heldout")
        if number >= len(tasks):
            raise DataError(f"there are {len(tasks)} held-out tasks, numbered from 0")
        await parts.load(0)
        planned = new_member(tasks[number], "check", 0, recipe.seed, "check")
        episode = parts.runner(recipe.rollout).episode(0, planned)
        assert isinstance(episode, AgentEpisode)  # the recipe names an agent
        played = await episode.run()
        return _account(_name(recipe), played, episode, parts.tokenizer.decode)
    finally:
        await parts.stop()


def _name(recipe: Recipe) -> str:
    """The recipe's agent as it was given: a program with its arguments, or a function."""
    agent = recipe.find(AgentConfig)
    if isinstance(agent, CommandAgent):
        return shlex.join(agent.command)
    return agent.run if isinstance(agent, FunctionAgent | RemoteAgent) else ""


def _account(agent: str, played: Trajectory, episode: Any, decode: Any) -> Check:
    capture, usage, tokens = episode.capture, episode.usage, played.tokens
    counts = {
        "agent": agent,
        "calls by dialect": _listed(usage.dialects),
        "turns": len(played.turns),
        "tools offered": _listed(usage.tools),
        "tool calls that came back": played.tool_calls,
        "calls of the environment's tools": episode.tools_called,
        "contexts": len(tokens.spans) if len(tokens) else 0,
        "why they were begun": _listed(usage.contexts),
        "tokens, with what was read": len(tokens),
        "tokens sampled": capture.sampled,
        "tokens that would be trained": (
            f"{capture.trained} ({capture.coverage:.0%})" if capture.sampled else "none"
        ),
        "not trained, and why": _listed(capture.dropped),
        **{f"role {name}": _listed(counts) for name, counts in capture.roles.items()},
        "replies by ending": _listed(usage.endings),
        "refused, by field or limit": _listed(capture.refused),
        "requests that came again": capture.retried,
        "fields without bearing": _listed(usage.ignored),
        "seconds": f"{played.seconds:.1f}",
    }
    said = []
    for fork in forks(tokens):
        one, other = (
            decode(tokens.ids[tokens.spans[n]][fork.shared : fork.shared + AROUND].tolist())
            for n in (fork.context, fork.other)
        )
        said.append(
            f"context {fork.context + 1} begins with {fork.shared} of its {fork.length} tokens as "
            f"context {fork.other + 1} does; then it has {one!r}, the other {other!r}"
        )
    return Check(str(played.outcome), played.reward, played.problem, counts, said)


@dataclass(frozen=True)
class Fork:
    """A context that shares its beginning with an earlier one. Example: Fork(1, 0, 120, 180)."""

    context: int
    other: int
    """The earlier context that it shares most with."""
    shared: int
    """Tokens that both begin with."""
    length: int


def forks(tokens: Tokens) -> list[Fork]:
    """The fork of each context but the first."""
    contexts = [tokens.ids[span] for span in tokens.spans]
    found = []
    for number, context in enumerate(contexts[1:], 1):
        shared = [_shared(context, other) for other in contexts[:number]]
        other = int(np.argmax(shared))
        found.append(Fork(number, other, shared[other], len(context)))
    return found


def _shared(one: np.ndarray, other: np.ndarray) -> int:
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if len(different) else length


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"

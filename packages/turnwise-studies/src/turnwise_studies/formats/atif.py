"""Trajectories in ATIF, the interchange format of the Harbor framework, as chat messages.

Format: https://github.com/harbor-framework/harbor/blob/main/rfcs/0001-trajectory-format.md. Steps
that were copied, that no model made, or that turnwise could not read, are shown and not trained.
Where a step replaces the context, another conversation begins, and so does each sub-agent's.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from turnwise.errors import DataError

VERSIONS = tuple(f"ATIF-v1.{minor}" for minor in range(4, 9))
OWN = "turnwise"
"""The key of a step's `extra` for what the format has no word for."""
OTHER_KINDS = ("error", "summary")
"""Kinds of turns whose text stands for itself."""
Step = Mapping[str, Any]
Messages = list[dict[str, Any]]


def is_atif(value: Any) -> bool:
    return isinstance(value, dict) and str(value.get("schema_version")).startswith("ATIF-")


def conversations_of(
    trajectory: Mapping[str, Any], place: str, folder: Path, files: Collection[Path]
) -> Iterator[tuple[str, Messages]]:
    """The conversations of a trajectory and of sub-agents in it that have a step to learn from,
    with their places.

    References to other trajectories are paths from `folder`, and are to be among `files`, which are
    resolved. Raises DataError, with place and step, for what is not in ATIF or cannot be shown
    again.
    """
    if trajectory["schema_version"] not in VERSIONS:
        raise DataError(
            f"{place} is in {trajectory['schema_version']}: {VERSIONS[0]} to {VERSIONS[-1]} are "
            "read"
        )
    embedded = _objects(trajectory.get("subagent_trajectories"), "subagent_trajectories", place)
    there = {str(one["trajectory_id"]) for one in embedded if "trajectory_id" in one}
    pieces: list[Messages] = [[]]
    for step in _objects(trajectory.get("steps"), "steps", place):
        at = f"{place}, step {step.get('step_id')}"
        for result in _results(step, at):
            _check_references(result, there, folder, files, at)
        if _begins_context(step, at):
            pieces.append([])
        pieces[-1] += _messages(step, at)
    found = [piece for piece in pieces if any(one.get("weight") for one in piece)]
    for number, piece in enumerate(found, 1):
        yield (place if len(found) == 1 else f"{place}, context {number}"), piece
    for one in embedded:
        inner = f"{place}, sub-agent {one.get('trajectory_id')}"
        if not is_atif(one):
            raise DataError(f"{inner} has no schema_version")
        yield from conversations_of(one, inner, folder, files)


def _objects(value: Any, name: str, place: str) -> list[dict[str, Any]]:
    if value is None and name != "steps":
        return []
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise DataError(f'{place}: "{name}" is a list of objects')
    return value


def _results(step: Step, place: str) -> list[dict[str, Any]]:
    observation = step.get("observation") or {}
    if not isinstance(observation, dict):
        raise DataError(f'{place}: an observation is {{"results": [...]}}')
    return _objects(observation.get("results"), "results", place)


def _check_references(
    result: Mapping[str, Any],
    there: Collection[str],
    folder: Path,
    files: Collection[Path],
    place: str,
) -> None:
    references = _objects(result.get("subagent_trajectory_ref"), "subagent_trajectory_ref", place)
    for one in references:
        path = one.get("trajectory_path")
        whole = None if path is None else (folder / str(path)).resolve()
        if one.get("trajectory_id") not in there and whole not in files:
            raise DataError(
                f"{place}: the trajectory of the sub-agent {path or one.get('trajectory_id')} is "
                "not embedded: embed it, or give the folder with both"
            )
    if references and result.get("source_call_id") and result.get("content") is None:
        raise DataError(f"{place}: what the agent was shown of its sub-agent is not recorded")


def _management(step: Step) -> Mapping[str, Any]:
    found = (step.get("extra") or {}).get("context_management")
    return found if isinstance(found, dict) else {}


def _begins_context(step: Step, place: str) -> bool:
    boundary = _management(step).get("boundary")
    if boundary not in (None, "append", "replace"):
        raise DataError(f"{place}: what is left of the context at {boundary!r} is not recorded")
    return str(boundary) == "replace"


def _messages(step: Step, place: str) -> Messages:
    source, shown = step.get("source"), {"step_id": step.get("step_id")}
    if source not in ("system", "user", "agent"):
        raise DataError(f"{place} is by {source!r}: use system, user or agent")
    content, results = step.get("message"), _results(step, place)
    if source == "agent":
        return _turn(step, results, place)
    said = [(source, None if _management(step) else content)]
    said += [("user", result.get("content")) for result in results]
    return [{"role": role, "content": text, **shown} for role, text in said if text]


def _turn(step: Step, results: list[dict[str, Any]], place: str) -> Messages:
    """A turn of the agent, and results of its calls; one that names no call is the next's."""
    number = step.get("step_id")
    calls = [
        {
            "id": str(call.get("tool_call_id")),
            "type": "function",
            "function": {"name": call.get("function_name"), "arguments": call.get("arguments")},
        }
        for call in _objects(step.get("tool_calls"), "tool_calls", place)
    ]
    own = (step.get("extra") or {}).get(OWN) or {}
    malformed = own.get("error") is not None
    untrained = step.get("is_copied_context") or step.get("llm_call_count") == 0 or malformed
    turn = {
        "role": "assistant",
        "content": step.get("message"),
        "reasoning_content": step.get("reasoning_content"),
        "tool_calls": calls,
        "weight": 0 if untrained else 1,
        "verbatim": any(own.get(kind) for kind in OTHER_KINDS),
        "step_id": number,
    }
    named = {str(result.get("source_call_id")) for result in results}
    free = iter([call["id"] for call in calls if call["id"] not in named])
    messages = [turn]
    for result in results:
        call = result.get("source_call_id") or next(free, None)
        who = {"role": "user"} if call is None else {"role": "tool", "tool_call_id": str(call)}
        messages.append({**who, "content": result.get("content"), "step_id": number})
    return messages

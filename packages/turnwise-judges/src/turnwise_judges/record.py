"""The record of an episode that a judge is shown: plain data, of bounded length, with what the
agent wrote and what came back, and neither the task's secret nor the verdict."""

import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from turnwise.types import Observation, Trajectory
from turnwise_judges.prompt import ESCAPE, ESCAPED


def record_of(trajectory: Trajectory, max_characters: int) -> dict[str, Any]:
    """The first message, which is the task, the turns and the answer.

    Its texts have together at most `max_characters` as they are quoted: else the longest are cut in
    the middle, with a note. An agent that writes much could put itself beyond the judge's context,
    and so escape its grade. Task and answer have half of the room; what came back and what the
    agent wrote share the rest evenly, so that it cuts itself alone. Images are counted, not shown.
    """
    ends, room = _fitted([trajectory.prompt, trajectory.answer or ""], max_characters // 2)
    prompt, answer = ends
    room += max_characters - max_characters // 2
    came_back = [None if turn.step is None else turn.step.observation for turn in trajectory.turns]
    sides = [
        ["" if one is None else one.content for one in came_back],
        [turn.action.text for turn in trajectory.turns],
    ]
    share = _share([sum(map(_length, texts)) for texts in sides], room)
    (returned, _), (wrote, _) = (_fitted(texts, share) for texts in sides)
    turns = [
        {"agent": agent, "returned": text} | _images(observation)
        for agent, text, observation in zip(wrote, returned, came_back, strict=True)
    ]
    record: dict[str, Any] = {"task": prompt} | _images(trajectory.first) | {"turns": turns}
    record["answer"] = answer if trajectory.answer is not None else None
    if trajectory.outcome.truncated or trajectory.outcome.family == "agent":
        record["ended_by"] = str(trajectory.outcome)
    return record


def _images(observation: Observation | None) -> dict[str, int]:
    return {"images": len(observation.images)} if observation and observation.images else {}


def _length(text: str) -> int:
    """Characters as quoted: of a letter beyond ASCII there are six or twelve."""
    longer = sum(map(text.count, ESCAPED))
    return len(json.dumps(text)) - 2 + longer * (len(ESCAPE.format(0)) - 1)


def _fitted(texts: Sequence[str], room: int) -> tuple[list[str], int]:
    """The texts, cut, and the room that is left."""
    lengths = [_length(text) for text in texts]
    longest = _share(lengths, room)
    return [_cut(text, longest) for text in texts], room - sum(min(n, longest) for n in lengths)


def _share(lengths: Sequence[int], room: int) -> int:
    """The length to cut texts to, so that all have room; short ones leave theirs to others."""
    for place, length in enumerate(sorted(lengths)):
        share = room // (len(lengths) - place)
        if length > share:
            return share
        room -= length
    return max(lengths, default=0)


def _cut(text: str, longest: int) -> str:
    """The text, or its beginning and its end with a note between them."""
    if _length(text) <= longest:
        return text
    half = longest // 2
    # A quoted text is at least as long as it was: no more than this can be left of it.
    first, last = text[:half], text[max(len(text) - half, 0) :]
    head = first[: _most(len(first), lambda size: _length(first[:size]) <= half)]
    tail = last[len(last) - _most(len(last), lambda size: _length(last[-size:]) <= half) :]
    return f"{head} … {len(text) - len(head) - len(tail)} characters left out … {tail}"


def _most(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest size up to the limit that fits, where all smaller ones do; 0 if there is none."""
    return bisect_left(range(1, limit + 1), True, key=lambda size: not fits(size))

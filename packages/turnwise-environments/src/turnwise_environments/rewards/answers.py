"""Parts of tasks with short answers: exact match, word overlap, citations, and two papers' rewards.

The accepted answers are `task.secret["answers"]`, or the one in `task.secret["answer"]`; a task
without either has no number. Comparisons are those of `answer.py`.
"""

import re
from collections.abc import Iterator
from typing import Annotated

from turnwise.ranges import Range
from turnwise.rewards import answer as short
from turnwise.rewards.measuring import PartError
from turnwise.rewards.parts import reward_part
from turnwise.types import Trajectory, Turn

_DOCUMENT = re.compile(r"^[ \t]*\[([^\[\]\n]{1,80})\]", re.MULTILINE)
_TITLE = re.compile(r"[^\n]*?(?=[.:]\s|[.:]?$)", re.MULTILINE)
MALFORMED = -1.0
"""Tool-Star's reward of a broken form."""


def accepted_answers(trajectory: Trajectory) -> list[str]:
    """The accepted answers of a task. Raises PartError where it has none."""
    secret = trajectory.task.secret
    found = secret.get("answers", secret.get("answer"))
    answers = list(found) if isinstance(found, list | tuple) else [found]
    if not answers or not all(isinstance(one, str) for one in answers):
        raise PartError("the task's secret has neither `answers`, a list of texts, nor `answer`")
    return answers


@reward_part("exact_match", 0, 1)
def exact_match(trajectory: Trajectory) -> float:
    """1 where the answer is an accepted one, normalised as in SQuAD, else 0."""
    return float(short.exact_match(trajectory.answer, accepted_answers(trajectory)))


@reward_part("f1", 0, 1)
def f1(trajectory: Trajectory) -> float:
    """Word overlap of the answer with the nearest accepted one (F1).

    An answer that names every candidate earns a part: gate it, or keep its weight small.
    """
    return short.f1(trajectory.answer, accepted_answers(trajectory))


@reward_part("cited", 0, 1)
def cited(trajectory: Trajectory, tools: tuple[str, ...] = ()) -> float:
    """1 where the answering turn names documents, and all of them state an accepted answer.

    A document is what stands in an observation from a line's beginning with `[id]` up to the next
    such line; its title is the text behind the brackets up to the first full stop, colon or end of
    line. It is named by `[id]` in the thought or the answer of the turn that answers last, or,
    where no id is, by its title's words in the thought. Whether the answer is right is not asked:
    gate it by `success`. `tools` are those whose results are documents; without any, whatever was
    observed counts.
    """
    accepted = accepted_answers(trajectory)
    shown: dict[str, str] = {}
    found = 0.0
    for turn in trajectory.turns:
        if turn.action.answer is not None:
            said = f"{turn.action.thought} {turn.action.answer}"
            named = [text for key, text in shown.items() if f"[{key}]" in said]
            named = named or [text for text in shown.values() if _titled(turn.action.thought, text)]
            found = float(bool(named) and all(short.states(text, accepted) for text in named))
        for text in _results(turn, tools):
            shown |= dict(_documents(text))
    return found


@reward_part("search_r1", 0, 1)
def search_r1(
    trajectory: Trajectory,
    format: bool = False,
    structure: Annotated[float, Range(0, 0.5)] = 0.2,
    final: Annotated[float, Range(0, 0.5)] = 0.1,
    retrieval: Annotated[float, Range(0, 0.5)] = 0.0,
) -> float:
    """Search-R1's reward: exact match; with `format` also for a right form and retrieval.

    With `format`, of a right answer: 1 in the right form, else 1 - `structure`; of a wrong one:
    `structure` in the right form, and `retrieval` more where an observation states an accepted
    answer, else `final`; without an answer 0. The form is right where every turn could be parsed
    and has a thought, and the last one answers. What any tool shows counts as retrieved. Source:
    Jin et al. 2025 (arXiv 2503.09516), and its code's version with format rewards (v0.3).
    """
    accepted = accepted_answers(trajectory)
    right = short.exact_match(trajectory.answer, accepted)
    if not format or trajectory.answer is None:
        return float(right)
    turns = trajectory.turns
    valid = turns[-1].action.answer is not None and all(
        turn.action.error is None and (turn.action.summary or turn.action.thought.strip())
        for turn in turns
    )
    if right:
        return 1.0 if valid else 1.0 - structure
    if not valid:
        return final
    stated = any(short.states(text, accepted) for text in trajectory.observed)
    return structure + retrieval * stated


@reward_part("tool_star", MALFORMED, 1.5)
def tool_star(
    trajectory: Trajectory,
    tools: tuple[str, ...] = ("search", "python"),
    bonus: Annotated[float, Range(0, 0.5)] = 0.1,
) -> float:
    """Tool-Star's reward: -1 malformed, 0 wrong, else F1, and a bonus where all tools were used.

    Malformed is an episode with a turn that could not be parsed, or without an answer; a tool was
    used if a call of it gave a result. Source: Dong et al. 2025 (arXiv 2505.16410).
    """
    malformed = any(turn.action.error is not None for turn in trajectory.turns)
    if malformed or trajectory.answer is None:
        return MALFORMED
    score = short.f1(trajectory.answer, accepted_answers(trajectory))
    steps = [turn.step for turn in trajectory.turns if turn.step is not None]
    used = {result.call.name for step in steps for result in step.results if result.ok}
    return score + bonus * (used >= set(tools)) if score else 0.0


def _results(turn: Turn, tools: tuple[str, ...]) -> list[str]:
    """The texts that came back in a turn: of these tools, or all."""
    if turn.step is None:
        return []
    if tools:
        return [one.content for one in turn.step.results if one.ok and one.call.name in tools]
    return [turn.step.observation.content] if turn.step.observation is not None else []


def _documents(observation: str) -> Iterator[tuple[str, str]]:
    """Id and text of each document in an observation."""
    marks = list(_DOCUMENT.finditer(observation))
    ends = [*(mark.start() for mark in marks), len(observation)]
    for mark, end in zip(marks, ends[1:], strict=True):
        yield mark[1].strip(), observation[mark.end() : end]


def _titled(said: str, text: str) -> bool:
    """Whether a text has the words of a document's title."""
    found = _TITLE.match(text.strip())
    return short.states(said, [found[0] if found else ""])

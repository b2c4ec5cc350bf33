"""The environment of the study webgpt, answers with references; its demonstrations and measures."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from turnwise import open_run
from turnwise.environments.base import EnvironmentSpec
from turnwise.environments.search.environment import SearchEnvironment
from turnwise.environments.search.library import StandardQuestions
from turnwise.environments.turn_parts import lines_of, share
from turnwise.rewards.answer import exact_match, states
from turnwise.rollout.demonstrations import Script
from turnwise.seeds import derive
from turnwise.types import Action, Task, Trajectory, Verdict

RESULTS = 2
TOKENS = 24
"""A result has so many at most: room for its card, which states the facts."""


class References(SearchEnvironment):
    """Questions of one search. An answer has the title of the result that states it, as in
    `tarfile [Class TarFile]`.

    A search always gives RESULTS documents, some of which nothing but chance has chosen, in an
    order that says nothing.
    """

    facts = EnvironmentSpec(
        "references",
        "1",
        parts={"supported": share("whether the cited result, not the question, states the answer")},
    )

    def __init__(self) -> None:
        super().__init__(StandardQuestions(hops=("one",)), RESULTS, TOKENS)

    def _find(self, query: str) -> list[int]:
        chance = [derive("references", query, rank) for rank in range(RESULTS)]
        places = [*super()._find(query), *(one % len(self.documents) for one in chance)]
        shown = list(dict.fromkeys(places))[:RESULTS]
        return sorted(shown, key=lambda place: derive("references", query, "place", place))

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """Success is an accepted answer with a result that states it of what was asked."""
        answer, title = _parted(trajectory.answer or "")
        lines = [line[4:] for turn in trajectory.turns for line in lines_of(turn, "search")]
        cited = [line for line in lines if _name(_title(line)) == _name(title)]
        accepted, asked = trajectory.task.secret["answers"], trajectory.task.prompt
        right = any(self._states(line, trajectory.task) for line in cited)
        success = exact_match(answer, accepted) and right
        supported = any(states(line, [answer]) for line in cited) and not states(asked, [answer])
        parts = {"supported": float(supported)}
        return Verdict(float(success), success, parts, f"answered {trajectory.answer!r}")

    def oracle(self, task: Task) -> Sequence[Action]:
        """Search, then answer with the title of the first result that states it."""
        search, answer = super().oracle(task)
        lines = [line[4:] for line in self._listed(task.secret["chain"][0][0]).split("\n")]
        title = next((_title(line) for line in lines if self._states(line, task)), "")
        return [search, replace(answer, answer=f"{answer.answer} [{title}]")]

    def titles(self, query: str) -> list[str]:
        """The titles of the results, in their order."""
        return [_title(self.documents[place].card) for place in self._find(query)]

    def _states(self, line: str, task: Task) -> bool:
        (way,) = task.secret["chain"]
        return line in {self._shown(document) for document in self._evidence(*way)}


def misciting(script: Script, other: Script) -> Script:
    """Answers rightly, with the title of another result, if one has another title."""
    del other
    answer, title = _parted(str(script[-1].answer))
    others = [one for one in _references().titles(_query(script)) if one != title]
    return [script[0], replace(script[-1], answer=f"{answer} [{[*others, title][0]}]")]


def misanswering(script: Script, other: Script) -> Script:
    """Answers with the name that was asked about, and cites the result that states the answer."""
    del other
    _, title = _parted(str(script[-1].answer))
    return [script[0], replace(script[-1], answer=f"{_query(script)} [{title}]")]


def unreferenced(script: Script, other: Script) -> Script:
    """Answers rightly, and cites nothing."""
    del other
    return [script[0], replace(script[-1], answer=_parted(str(script[-1].answer))[0])]


@cache
def _references() -> References:
    return References()


def _query(script: Script) -> str:
    (query,) = script[0].calls[0].arguments.values()
    return str(query)


def _parted(answer: str) -> tuple[str, str]:
    """The answer alone, and the title that it cites."""
    alone, _, title = answer.removesuffix("]").rpartition(" [")
    return alone, title


def _title(line: str) -> str:
    return line.partition(". ")[0]


def _name(title: str) -> str:
    """All that counts of a title: a wrong kind before the name is no wrong reference."""
    return title.rpartition(" ")[2]


def success(folder: Path) -> float:
    """Share of the held-out questions whose given answer is right, with a right reference."""
    return fmean(float(one["success"]) for one in _given(folder))


def supported(folder: Path) -> float:
    """Share of them whose given answer is stated by the cited result."""
    return fmean(one["parts"]["supported"] for one in _given(folder))


def accuracy(folder: Path) -> float | None:
    """The reward model's on held-out comparisons; None where there are none."""
    found: float | None = json.loads((folder / "reward_model.json").read_text())["accuracy"]
    return found


def ranking(folder: Path) -> float | None:
    """Share of the pairs of a right and a wrong answer of the policy's own, to one held-out
    question, in which the reward model prefers the right one."""
    part = open_run(folder).recipe().evaluation.best_of
    if not part:
        return None
    pairs = [
        right["parts"][part] > wrong["parts"][part]
        for answers in _answers(folder)
        for right, wrong in product(answers, answers)
        if right["success"] and not wrong["success"]
    ]
    return fmean(pairs) if pairs else None


def cited(folder: Path) -> float:
    """Success of a question's cited answers, in the mean; of all, where none cites: what wanting a
    reference alone would choose."""
    asked = _answers(folder)
    citing = [[one for one in own if _parted(one["answer"] or "")[0]] for own in asked]
    chosen = [some or own for some, own in zip(citing, asked, strict=True)]
    return fmean(fmean(float(one["success"]) for one in own) for own in chosen)


def _given(folder: Path) -> list[dict[str, Any]]:
    """The one of a question's answers that the reward model chooses; all, where none chooses."""
    part = open_run(folder).recipe().evaluation.best_of
    if not part:
        return [one for answers in _answers(folder) for one in answers]
    return [max(answers, key=lambda one: one["parts"][part]) for answers in _answers(folder)]


def _answers(folder: Path) -> list[list[dict[str, Any]]]:
    """The graded answers of the last evaluation, by question."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in open_run(folder).trajectories("evaluation-trained").to_pylist():
        if row["success"] is not None:
            found[row["task"]].append(row | {"parts": json.loads(row["parts"])})
    return list(found.values())

"""The environment of the study webgpt, answers with references; its demonstrations and measures."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from transformers import AutoTokenizer

from turnwise import open_run
from turnwise.environments.base import EnvironmentSpec
from turnwise.environments.search.environment import SearchEnvironment
from turnwise.environments.search.library import StandardQuestions
from turnwise.environments.turn_parts import lines_of, share
from turnwise.rewards.answer import exact_match, states
from turnwise.rollout.demonstrations import Script
from turnwise.seeds import derive
from turnwise.storage.messages import messages_of
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows
from turnwise.types import Action, Task, Trajectory, Verdict

RESULTS = 3
TOKENS = 24
"""A result has so many at most: room for its card, which states the facts."""


class References(SearchEnvironment):
    """Questions of one search. An answer names the result that states it, as in `tarfile [2]`.

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
        answer, _, number = (trajectory.answer or "").rpartition(" ")
        lines = [line for turn in trajectory.turns for line in lines_of(turn, "search")]
        cited = next((one for one in reversed(lines) if one.startswith(f"{number} ")), "")
        accepted = trajectory.task.secret["answers"]
        success = exact_match(answer, accepted) and self._states(cited, trajectory.task)
        supported = states(cited, [answer]) and not states(trajectory.task.prompt, [answer])
        parts = {"supported": float(supported)}
        return Verdict(float(success), success, parts, f"answered {trajectory.answer!r}")

    def oracle(self, task: Task) -> Sequence[Action]:
        """Search, then answer with the first result that states it."""
        search, answer = super().oracle(task)
        lines = self._listed(task.secret["chain"][0][0]).split("\n")
        number = next((line[:3] for line in lines if self._states(line, task)), "[0]")
        return [search, replace(answer, answer=f"{answer.answer} {number}")]

    def _states(self, line: str, task: Task) -> bool:
        (way,) = task.secret["chain"]
        return line[4:] in {self._shown(document) for document in self._evidence(*way)}


def misciting(script: Script, other: Script) -> Script:
    """Answers rightly, with the result after the one that states it."""
    del other
    answer, number = _parted(script)
    return [script[0], replace(script[-1], answer=f"{answer} [{number % RESULTS + 1}]")]


def misanswering(script: Script, other: Script) -> Script:
    """Answers with the name that was asked about, and cites the result that states the answer."""
    del other
    (query,) = script[0].calls[0].arguments.values()
    return [script[0], replace(script[-1], answer=f"{query} [{_parted(script)[1]}]")]


def comparisons(folder: Path) -> Iterator[str]:
    """Lines of reward_model.data: a run's right demonstrations, each with one of the two errors."""
    run = RunFolder.open(folder)
    decode = AutoTokenizer.from_pretrained(str(run.tokenizer)).decode
    rows = read_rows(run.path / "trajectories" / "demonstrations.parquet")
    for place, row in enumerate(one for one in rows if one["success"]):
        *asked, chosen = messages_of(row, decode) or []
        query = json.loads(row["actions"])[0]["calls"][0]["arguments"]["query"]
        answer, number = chosen["content"].rstrip("]").split(" [")
        wrong = f"{answer} [{int(number) % RESULTS + 1}]" if place % 2 else f"{query} [{number}]"
        pair = {"chosen": [chosen], "rejected": [{**chosen, "content": wrong}]}
        yield json.dumps({"prompt": asked, **pair})


def _parted(script: Script) -> tuple[str, int]:
    answer, _, number = (script[-1].answer or "").rpartition(" ")
    return answer, int(number.strip("[]"))


def success(folder: Path) -> float:
    """Share of the held-out questions whose given answer is right, with a right reference."""
    return fmean(float(one["success"]) for one in _given(folder))


def supported(folder: Path) -> float:
    """Share of them whose given answer is stated by the cited result."""
    return fmean(one["parts"]["supported"] for one in _given(folder))


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

"""The method `transitions`: what the actions of a run's episodes brought, as tasks of prediction.

    [synthesis]
    method = "transitions"
    options.run = "runs/mine"

Source: Reinforcement World Model Learning (arXiv 2602.05842, section 2.2). What is too easy is kept
with a small probability only. Other than there, where a model that imitated a tenth of the
transitions guesses the others: the guesses are what the same action brought in that tenth, after
the same observation if it is there.
"""

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, NamedTuple

from turnwise.errors import DataError
from turnwise.ranges import Range, Share
from turnwise.seeds import derive
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_columns, rows_of_tasks
from turnwise_synthesis.heldout import normalised
from turnwise_synthesis.items import Item, Material, Refused
from turnwise_synthesis.next_observations import NEAR, is_near

COLUMNS = ("task", "prompt", "group", "actions", "steps")
GUESSES = 10
"""Attempts at a transition, of which it is easy if enough succeed."""
TENTH = 10
"""One transition in so many is guessed from, and is no item."""
EASY, SPENT = "easy", "all transitions were tried: lower synthesis.items, or read a longer run"


class Transition(NamedTuple):
    task: str
    before: tuple[str, ...]
    """The first observation, then the actions and observations up to the action."""
    action: str
    observation: str


class Transitions:
    """Example: Transitions(material, "runs/mine", history=2)."""

    def __init__(
        self,
        material: Material,
        run: str,
        history: Annotated[int, Range(0)] = 4,
        max_distance: Share = NEAR,
        easy: Share = 0.5,
        easy_kept: Share = 0.1,
    ) -> None:
        """A task shows the first observation and the last `history` turns. It is easy where the
        share `easy` of guesses is near enough, and is then kept with probability `easy_kept`.
        Raises DataError for a run without transitions."""
        self.history, self.max_distance, self.seed = history, max_distance, material.seed
        self.easy, self.easy_kept = easy, easy_kept
        found = list(_transitions(RunFolder.open(Path(run))))
        random.Random(derive(self.seed, "order")).shuffle(found)
        known, self.asked = found[: len(found) // TENTH], found[len(found) // TENTH :]
        if not self.asked:
            raise DataError(f"{run} has no episode in which something came back of an action")
        self.known: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for one in known:
            self.known[one.before[-1], one.action].append(one.observation)
            self.known[one.action,].append(one.observation)

    def propose(self, attempt: int) -> Item:
        """The task of an attempt. Raises Refused, and DataError where there is no other."""
        if attempt >= len(self.asked):
            raise DataError(SPENT)
        one, drawn = self.asked[attempt], random.Random(derive(self.seed, attempt))
        if self._rate(one, drawn) >= self.easy and drawn.random() >= self.easy_kept:
            raise Refused(EASY)
        first, *later = one.before
        shown = later[max(0, len(later) - 2 * self.history) :]
        question = "\n".join([first, *shown, one.action, "What comes back?"])
        data = {"question": question, "answer": one.observation, "task": one.task}
        return Item(normalised(f"{question}\n{one.observation}"), data)

    def _rate(self, one: Transition, drawn: random.Random) -> float:
        """The share of guesses that are near enough; 0 where there is nothing to guess from."""
        guesses = self.known.get((one.before[-1], one.action)) or self.known.get((one.action,))
        if not guesses:
            return 0.0
        tried = drawn.choices(guesses, k=GUESSES)
        return fmean(is_near(guess, one.observation, self.max_distance) for guess in tried)


def _transitions(folder: RunFolder) -> Iterator[Transition]:
    """The transitions of a run's training episodes, in order."""
    for file in sorted(folder.trajectory_files()):
        if not file.stem.startswith("evaluation-"):
            for row in rows_of_tasks(read_columns(file, COLUMNS)):
                yield from _of_row(row)


def _of_row(row: Mapping[str, Any]) -> Iterator[Transition]:
    before = [str(row["prompt"]).strip()]
    for action, step in zip(json.loads(row["actions"]), json.loads(row["steps"]), strict=False):
        shown = step["observation"][0].strip() if step and step["observation"] else ""
        if action["error"] is not None or not shown:
            return
        acted = action["text"].strip()
        yield Transition(row["task"], tuple(before), acted, shown)
        before += [acted, shown]

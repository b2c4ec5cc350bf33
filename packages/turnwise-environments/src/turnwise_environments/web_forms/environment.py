"""The environment of web forms, in MiniWoB's style (arXiv 1802.08802): small tasks on small sites.

Thirteen kinds: press a button, fill in a form, choose, tick, enter a date, sign in, change
settings, choose from menus, act on a row, search a list over pages, look something up, handle a
mail, book a journey. What ends a task is done once, as there: a wrong form cannot be sent again.
The pages are not MiniWoB's, there is no clock, and the reward is 1 or 0.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from turnwise.environments.base import EnvironmentSpec
from turnwise.environments.tasksets import SOLVED, SPLITS, Split, TaskSet
from turnwise.errors import ConfigError
from turnwise.ranges import Count
from turnwise.seeds import derive
from turnwise.types import Action, Task, Trajectory, Verdict
from turnwise_environments.common import each_once, identity
from turnwise_environments.web import EpisodeSite, Observations, Pages, WebEnvironment
from turnwise_environments.web_forms.kinds import KINDS
from turnwise_environments.web_forms.kinds.base import Draft, FormSite, words_of

DRAFTS_PER_TASK = 50


COUNT = 1000
RANDOM_SCORE = 0.024
"""Measured on the standard tasks."""


def made_tasks(count: int, kinds: Sequence[str]) -> TaskSet:
    """`count` tasks for each split, the kinds in turn. Raises ConfigError where there are not so
    many."""
    tasks = {split: _made(split, count, kinds) for split in SPLITS}
    standard = count == COUNT and list(kinds) == list(KINDS)
    scores = SOLVED | ({"random": RANDOM_SCORE} if standard else {})
    return TaskSet.of(tasks, scores)


def _made(split: Split, count: int, kinds: Sequence[str]) -> list[Task]:
    found: dict[str, Task] = {}
    drafts = {kind: _drafts(split, kind, count) for kind in kinds}
    while len(found) < count:
        kind = kinds[len(found) % len(kinds)]
        task = next((one for one in drafts[kind] if one.id not in found), None)
        if task is None:
            raise ConfigError(f"web_forms: there are not so many tasks {kind!r}: lower count")
        found[task.id] = task
    return list(found.values())


def _drafts(split: Split, kind: str, count: int) -> Iterator[Task]:
    for number in range(count * DRAFTS_PER_TASK):
        stream = random.Random(derive("web forms", split, kind, number))
        draft = KINDS[kind].make(words_of(split), stream)
        content = json.dumps([kind, draft.prompt, draft.data, draft.wanted])
        name = identity(content)
        data = {"kind": kind, **draft.data}
        yield Task(name, draft.prompt, {"wanted": draft.wanted}, data, info={"kind": kind})


class WebForms(WebEnvironment):
    """Tools: click, fill, select, press, back, scroll, read."""

    facts = EnvironmentSpec("web_forms", "1")
    host = "forms.test"

    def __init__(
        self,
        count: Count = COUNT,
        kinds: Sequence[str] = (),
        pages: Pages = "text",
        observations: Observations = "text",
    ) -> None:
        """`count` tasks in each split, of these kinds, all by default. The agent is shown words, or
        images of the screen with the elements' numbers on it."""
        super().__init__(pages, observations)
        known = tuple(KINDS)
        self.task_set = made_tasks(count, each_once("web_forms: kinds", kinds or known, known))

    def site(self, data: Mapping[str, Any]) -> FormSite:
        return FormSite(KINDS[data["kind"]], data)

    def judged(self, site: EpisodeSite, trajectory: Trajectory) -> Verdict:
        """Success when the site received what was wanted, or the answer is right."""
        assert isinstance(site, FormSite)
        wanted = trajectory.task.secret["wanted"]
        sent = site.sent
        if "answer" in wanted:
            sent = {"answer": (trajectory.answer or "").strip().removesuffix(".")}
        success = sent == wanted
        return Verdict(float(success), success, detail=f"received {sent}")

    def oracle(self, task: Task) -> Sequence[Action]:
        wanted = task.secret["wanted"]
        draft = Draft(task.prompt, task.data, wanted)
        kind = KINDS[task.data["kind"]]
        actions = self.scripted(task, lambda look: kind.way(look, draft))
        if "answer" in wanted:
            return [*actions, Action("", "answer", answer=wanted["answer"])]
        return actions

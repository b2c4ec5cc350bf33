"""The environment of web forms, in MiniWoB's style (arXiv 1802.08802): small tasks on small sites.

Thirteen kinds: press a button, fill in a form, choose, tick, enter a date, sign in, change
settings, choose from menus, act on a row, search a list over pages, look something up, handle a
mail, book a journey. What ends a task is done once, as there: a wrong form cannot be sent again.
The pages are not MiniWoB's, there is no clock, and the reward is 1 or 0. Not here: pages with
scripts, with images, with something to drag.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.environments.base import EnvironmentSpec
from turnwise.ranges import Count
from turnwise.types import Action, Task, Trajectory, Verdict
from turnwise_environments.web import EpisodeSite, Observations, Pages, WebEnvironment
from turnwise_environments.web_forms.kinds import KINDS
from turnwise_environments.web_forms.kinds.base import Draft, FormSite
from turnwise_environments.web_forms.tasks import COUNT, made_tasks


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
        """`count` tasks in each split, of these kinds, all by default. The agent is shown words,
        or images of the screen with the elements' numbers on it.

        Raises ConfigError for an unknown kind, and where Chromium is needed and missing.
        """
        super().__init__(pages, observations)
        self.task_set = made_tasks(count, kinds or list(KINDS))

    def site(self, data: Mapping[str, Any]) -> FormSite:
        """The site of a new episode."""
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
        """The way of the task's kind, and the answer where one is asked for."""
        wanted = task.secret["wanted"]
        draft = Draft(task.prompt, task.data, wanted)
        kind = KINDS[task.data["kind"]]
        actions = self.scripted(task, lambda look: kind.way(look, draft))
        if "answer" in wanted:
            return [*actions, Action("", "answer", answer=wanted["answer"])]
        return actions

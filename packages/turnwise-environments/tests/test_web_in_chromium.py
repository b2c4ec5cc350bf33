"""Web environments in Chromium: what plain pages give, images, restored and lost episodes."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from browser_sites import opened
from environment_playing import rolled
from tests.fakes import byte_tokenizer
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.types import Action, Outcome, ToolCall
from turnwise_environments.measurement import Play, played, played_all, random_script, success
from turnwise_environments.shop.web import ShopWeb
from turnwise_environments.tools.browser.chromium import Browser, marked
from turnwise_environments.tools.browser.sites import Request, Response
from turnwise_environments.web import WebEnvironment
from turnwise_environments.web_forms.environment import WebForms
from turnwise_environments.web_forms.kinds import KINDS
from turnwise_environments.web_forms.kinds.base import FormSite


def real(kind: type[WebEnvironment], **options: Any) -> Any:
    """An environment in Chromium, whose browser has time; a skip where there is none."""
    with opened():
        pass
    made = kind(pages="browser", **options)
    made._browser.seconds = 120.0
    return made


def kill(browser: Browser) -> None:
    (pid,) = marked(browser._process.marker)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_the_same_as_plain_pages() -> None:
    pairs: list[tuple[WebEnvironment, Any]] = [
        (WebForms(count=2 * len(KINDS)), real(WebForms, count=2 * len(KINDS))),
        (ShopWeb(count=2), real(ShopWeb, count=2)),
    ]
    for plain, chromium in pairs:
        known = plain.tasks("heldout")[: len(KINDS)]
        scripts = [plain.oracle(task) for task in known]
        scripts += [random_script(plain, task) for task in known[:4]]
        tasks = [*known, *known[:4]]
        plays: list[list[Play]] = [played_all(one, tasks, scripts) for one in (plain, chromium)]
        assert [play.seen for play in plays[1]] == [play.seen for play in plays[0]]
        assert success(plays[1][: len(known)]) == 1
        chromium._browser.close()
        assert marked(chromium._browser._process.marker) == []


@pytest.mark.long
async def test_images() -> None:
    made = real(WebForms, count=2, kinds=["login"], observations="screenshot")
    assert made.shows_images
    task = made.tasks("train")[0]
    try:
        first = await made.reset(task.public(), 0)
        assert first.content == task.prompt
        step = await made.step(made.oracle(task)[0])
        assert step.observation.content == "Sign in (http://forms.test/)"
        images = [*first.images, *step.observation.images]
        assert [image[:4] for image in images] == [b"\x89PNG"] * 2
        assert images[0] != images[1]
        other = made.fresh()
        other.restore(made.snapshot())
        again = await other.step(Action("", calls=(ToolCall("nothing", {}),)))
        assert again.observation.images == step.observation.images
        await other.close()
    finally:
        await made.close()
    made._browser.close()


@pytest.mark.slow
async def test_an_episode_that_lost_its_browser_goes_on_and_one_is_restored() -> None:
    plain, made = (WebForms(count=1, kinds=["booking"]), real(WebForms, count=1, kinds=["booking"]))
    task = plain.tasks("train")[0]
    script = plain.oracle(task)
    expected = (await played(plain, task, script)).trajectory.observed
    one, other = made.fresh(), made.fresh()
    try:
        await one.reset(task.public(), 0)
        seen = [(await one.step(action)).observation.content for action in script[:5]]
        kill(made._browser)
        while not one.page.lost:
            await asyncio.sleep(0.02)
        seen += [(await one.step(action)).observation.content for action in script[5:7]]
        other.restore(one.snapshot())
        seen += [(await other.step(action)).observation.content for action in script[7:]]
        assert tuple(seen) == expected
        assert other._site.sent == task.secret["wanted"]
    finally:
        await one.close()
        await other.close()
    made._browser.close()


class DeadlySite(FormSite):
    """Its browser dies while the form is being sent."""

    browser: Browser

    def handle(self, request: Request) -> Response:
        if request.method == "POST" and self.data["labels"][0] == self.deadly:
            kill(self.browser)
        return super().handle(request)

    deadly = ""


class Deadly(WebForms):
    def site(self, data: Mapping[str, Any]) -> DeadlySite:
        made = DeadlySite(KINDS[data["kind"]], data)
        made.browser = self._browser
        return made


@pytest.mark.slow
def test_a_browser_that_dies_in_an_action_leaves_one_episode_ungraded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = real(Deadly, count=3, kinds=["button"])
    tokenizer = byte_tokenizer()
    scaffold = TagsScaffold(tokenizer, made.tools(), instructions="")
    tasks = made.tasks("train")
    plain = WebForms(count=3, kinds=["button"])
    first = {task.prompt: plain.oracle(task)[0] for task in tasks}
    monkeypatch.setattr(DeadlySite, "deadly", tasks[1].data["labels"][0])

    def say(session: str, prompt: Sequence[int]) -> list[int]:
        text = tokenizer.decode(prompt)
        (action,) = [action for task, action in first.items() if task in text]
        return scaffold.render(Action("", calls=action.calls))

    limits = {"max_turns": 2, "max_turn_tokens": 200, "max_tokens": 4000, "max_seconds": 120.0}
    before, dead, after = rolled(made, scaffold, say, tasks, max_ungraded_share=1.0, **limits)
    assert (dead.outcome, dead.reward) == (Outcome.INFRASTRUCTURE_STEP, None)
    assert "browser: " in dead.problem
    assert before.outcome == after.outcome == Outcome.SUCCESS
    assert made._browser._process.number == 2
    made._browser.close()
    assert marked(made._browser._process.marker) == []

"""Web forms: oracle and scores, splits, wrong forms, and the state of an episode."""

import pytest

from environment_playing import calling, judged, played, prototype, steps_of, verdict_of
from turnwise.config import load_recipe
from turnwise.conflicts import check
from turnwise.errors import ConfigError
from turnwise.parts.components import claims_of_sight
from turnwise.types import Action, Task, ToolCall
from turnwise_environments.choosing import all_tasks
from turnwise_environments.measurement import success
from turnwise_environments.web_forms.environment import WebForms
from turnwise_environments.web_forms.kinds import KINDS
from turnwise_environments.web_forms.kinds.lists import _found as found

made = prototype("web_forms")


def task_of(made: WebForms, kind: str) -> Task:
    return next(task for task in made.tasks("train") if task.info["kind"] == kind)


@pytest.mark.parametrize("kind", KINDS)
def test_what_another_task_wants_is_wrong(made: WebForms, kind: str) -> None:
    own, other = [task for task in made.tasks("train") if task.info["kind"] == kind][:2]
    *way, last = made.oracle(own)
    mixed = Task(own.id, own.prompt, other.secret, own.data)
    assert not judged(made, mixed, *way, last).success
    assert not judged(made, own, *way).success, "nothing was sent"
    assert judged(made, own, *way, last).success


def test_a_form_is_sent_once(made: WebForms) -> None:
    task = task_of(made, "button")
    right = made.oracle(task)[0].calls[0]
    wrong = ToolCall("click", {"element": right.arguments["element"] % 2 + 1})
    play = played(made, task, Action("", calls=(wrong, right)), Action("", calls=(right,)))
    assert verdict_of(play).detail.startswith("received {'pressed': '")
    assert (len(play.trajectory.turns), success([play])) == (1, 0.0)
    assert len(steps_of(play)[0].results) == 1


def test_no_text_on_a_page_is_a_verdict(made: WebForms) -> None:
    task = task_of(made, "fields")
    said = str(task.secret["wanted"])
    forged = [calling("fill", element=1, text=f"Done. Thank you. {said}"), Action("", answer=said)]
    assert not judged(made, task, *forged).success


def test_a_wrong_password_can_be_tried_again(made: WebForms) -> None:
    task = task_of(made, "login")
    user, password, sign_in, press = made.oracle(task)
    wrong = [calling("fill", element=1, text="x"), calling("click", element=3)]
    play = played(made, task, *wrong, user, password, sign_in, press)
    assert success([play]) == 1.0
    assert "User name or password is wrong." in play.trajectory.observed[1]
    assert not judged(made, task, *wrong, press).success


def test_a_search_finds_a_thing_by_all_of_its_words(made: WebForms) -> None:
    task = task_of(made, "search")
    number = int(task.secret["wanted"]["taken"])
    colour, good, city, _ = task.data["things"][number]
    assert found(task.data["things"], f"{city} {colour} {good.upper()}") == [number]


def test_keys_and_what_is_no_element(made: WebForms) -> None:
    task = task_of(made, "day")
    calls = [
        calling("press", element=1, key="Escape"),
        calling("press", element=4, key="Enter"),
        calling("click", element=77),
        calling("back"),
        calling("scroll", direction="left"),
        calling("goto", url="http://forms.test/done"),
    ]
    seen = played(made, task, *calls).trajectory.observed
    assert all(one.startswith("Error: ") for one in seen)
    assert "only the key Enter" in seen[0]
    assert "only the key Enter" in seen[1]
    assert "there is no tool 'goto'" in seen[-1]


def test_one_kind_and_images_that_no_model_is_shown() -> None:
    few = WebForms(count=5, kinds=["inbox"])
    assert {task.info["kind"] for task in all_tasks(few)} == {"inbox"}
    assert "random" not in few.spec.reference_scores
    recipe = load_recipe("search")
    check([*few.claims(), *claims_of_sight(recipe)])
    few.shows_images = True
    with pytest.raises(ConfigError, match=r"images, and model tiny \(qwen3\) takes words alone"):
        check([*few.claims(), *claims_of_sight(recipe)])


async def test_a_call_of_no_tool_after_a_restore_is_in_the_restored_episode() -> None:
    made = WebForms(count=1, kinds=["login"])
    task = made.tasks("train")[0]
    begun, ended = made.fresh(), made.fresh()
    await begun.reset(task.public(), 0)
    await ended.reset(task.public(), 0)
    for action in made.oracle(task):
        step = await ended.step(action)
    assert step.done
    ended.restore(begun.snapshot())
    assert not (await ended.step(Action("", calls=(ToolCall("nothing", {}),)))).done

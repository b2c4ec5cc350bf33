"""A village: who observes what, what is asked, and what of the answers stays."""

import pytest

from environment_playing import answered, judged, played, said, steps_of
from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.types import Action
from turnwise_environments.village import ASKED_FROM, DAYS, KINDS, Story


@pytest.fixture
def village() -> Environment:
    return make_environment("village", {"count": 4})


def shown(environment: Environment, *actions: Action) -> list[str]:
    return [
        said(step)
        for step in steps_of(played(environment, environment.tasks("train")[0], *actions))
        if step.observation
    ]


def test_each_question_stands_in_a_context_of_its_own_with_what_is_recalled(
    village: Environment,
) -> None:
    task = village.tasks("train")[0]
    steps = steps_of(played(village, task, *village.oracle(task)))
    assert [step.forgets for step in steps] == [True] * (len(steps) - 1) + [False]
    assert steps[-1].done
    recalled = [said(step).count(".") - 1 for step in steps[:-1]]
    assert set(recalled) <= set(range(10))
    assert 3 in recalled


def test_all_is_asked_and_all_right_answers_are_in_the_story() -> None:
    scenes = list(Story("train 0").told())
    asked = [scene for scene in scenes if scene.who]
    evenings = DAYS - ASKED_FROM
    kinds = {kind: sum(one.kind == kind for one in asked) for kind in KINDS}
    assert kinds == {"place": DAYS + evenings} | dict.fromkeys([*KINDS][1:], evenings)
    assert [scene.hour for scene in scenes] == sorted(scene.hour for scene in scenes)
    for place, one in enumerate(asked):
        before = [scene for scene in scenes[: scenes.index(one)] if one.who in scene.seen_by]
        if one.kind == "news":  # of what this one saw
            assert any(scene.text.endswith(f"has {one.answer}") for scene in before), place
        if one.kind == "teller":
            assert any(scene.text.startswith(f"{one.answer} says") for scene in before), place


def test_what_one_says_is_what_another_one_hears_and_a_reflection_is_a_memory(
    village: Environment,
) -> None:
    lie = shown(village, *[answered("nowhere")] * 60)
    assert any(" says " in text and " in nowhere." in text for text in lie)
    assert any(" likes nowhere." in text for text in lie)
    quiet = make_environment("village", {"count": 4, "reflection": 0.0})
    assert not any(
        " likes " in text for text in shown(quiet, *[answered("fig")] * 60) if "what?" not in text
    )


def test_without_memory_a_prompt_is_a_question() -> None:
    empty = make_environment("village", {"count": 4, "recalled": 0, "reflection": 0.0})
    assert all(text.count(".") == 1 for text in shown(empty, *[answered("fig")] * 30))


def test_the_share_of_right_answers_is_the_reward(village: Environment) -> None:
    task = village.tasks("train")[0]
    right = list(village.oracle(task))
    whole = judged(village, task, *right)
    assert (whole.reward, whole.success) == (1.0, True)
    some = judged(village, task, *right[:-1], answered("nowhere"))
    asked = 2 * DAYS + 5 * (DAYS - ASKED_FROM) - DAYS
    assert some.reward == pytest.approx(1 - 1 / asked)
    assert some.parts["right_guest"] == pytest.approx(2 / 3)
    assert not some.success
    listed = [answered(f"{action.answer} fig") for action in right]
    assert judged(village, task, *listed).reward == 0

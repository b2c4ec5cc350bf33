"""What actions brought, as tasks: which are made of episodes, and how predictions are judged."""

import json
from pathlib import Path
from typing import Any

import pytest

from turnwise.api import load_recipe
from turnwise.environments.tasksets import SPLITS
from turnwise.errors import DataError
from turnwise.storage.run_folder import RunFolder
from turnwise.types import Action, Group, ToolCall
from turnwise_environments.games.doors import Doors
from turnwise_environments.games.frozen_lake import FrozenLake
from turnwise_environments.measurement import played_all
from turnwise_synthesis.items import Item, Material, Refused
from turnwise_synthesis.next_observations import NextObservations, TransitionFile, rouge
from turnwise_synthesis.settings import SynthesisConfig
from turnwise_synthesis.studies.rwml import Moves
from turnwise_synthesis.transitions import EASY, Transitions


def opening(door: str) -> Action:
    return Action(f"<open>{door}</open>", calls=(ToolCall("open", {"door": door}),))


def proposed(folder: Path, **options: Any) -> list[Item | str]:
    """What is proposed of a run in which each of 30 walks goes through two rooms into a trap."""
    walks = Doors(rooms=3, doors=2)
    tasks = walks.tasks("train")[:30]
    other = {"red": "blue", "blue": "red"}
    scripts = [
        [opening(door) for door in (*task.data["right"][:2], other[task.data["right"][2]])]
        for task in tasks
    ]
    episodes = [play.trajectory for play in played_all(walks, tasks, scripts)]
    recipe = load_recipe("search")
    run = RunFolder.new(folder / "run")
    run.begin(recipe)
    for name, chosen in (("step-000001", episodes), ("evaluation-trained", episodes[:1])):
        run.write_trajectories(name, [Group("measured", tuple(chosen))])
    settings = SynthesisConfig(method="transitions")
    method = Transitions(Material(recipe, settings), str(run.path), **options)
    found: list[Item | str] = []
    for attempt in range(81):
        try:
            found.append(method.propose(attempt))
        except Refused as reason:
            found.append(str(reason))
    with pytest.raises(DataError, match="all transitions were tried"):
        method.propose(81)
    return found


def test_a_task_shows_the_last_turns_and_asks_for_what_came_back(tmp_path: Path) -> None:
    found = proposed(tmp_path, history=1, easy_kept=1.0)
    items = [one.data for one in found if isinstance(one, Item)]
    assert len(items) == 81
    assert {one["answer"] for one in items} == {"Room 2.", "Room 3.", "It is a trap."}
    lines = next(one for one in items if one["answer"] == "It is a trap.")["question"].split("\n")
    assert lines[:2] == ["3 rooms. Doors: red, blue.", "Room 1."]
    assert lines[3] == "Room 3."
    assert lines[2].startswith("<open>")
    assert lines[4].startswith("<open>")
    assert lines[5:] == ["What comes back?"]


def test_what_guesses_find_is_kept_rarely(tmp_path: Path) -> None:
    """A door of the first two rooms always leads on here, and one of the third never does."""
    found = proposed(tmp_path, easy=0.9, easy_kept=0.1)
    refused = sum(one == EASY for one in found)
    assert 60 <= refused < 81


def test_a_prediction_is_right_where_it_is_near(tmp_path: Path) -> None:
    file = tmp_path / "items.jsonl"
    file.write_text(json.dumps({"question": "Next?", "answer": "3: the red door"}))
    environment = NextObservations(TransitionFile(str(file), heldout_share=0.0), 0.3)
    (task,) = environment.tasks("train")
    scripts = [[Action("", answer=text)] for text in ("3: the red door", "3: a red door", "4: no")]
    scripts[0] = list(environment.oracle(task))
    verdicts = [one.trajectory.verdict for one in played_all(environment, [task] * 3, scripts)]
    assert [(one.reward, one.parts["similarity"]) for one in verdicts if one] == [
        (1.0, 1.0),
        (1.0, 0.75),
        (0.0, 0.0),
    ]


@pytest.mark.parametrize(
    ("predicted", "observed", "expected"),
    [("a b c d", "a c d", 6 / 7), ("b a", "a b", 0.5), ("", "a", 0.0), ("a a", "a", 2 / 3)],
)
def test_similarity_is_of_the_longest_common_subsequence(
    predicted: str, observed: str, expected: float
) -> None:
    assert rouge(predicted, observed) == pytest.approx(expected)


def test_a_predicted_move_brings_what_it_brings_in_the_game() -> None:
    pytest.importorskip("gymnasium")
    lake, asked = FrozenLake(maps=40, frozen_share=0.7), Moves(lakes=40, moves=100)
    answers = {
        split: {one.prompt: one.secret["answer"] for one in asked.tasks(split)} for split in SPLITS
    }
    assert not answers["train"].keys() & answers["heldout"].keys()
    move = Action("", calls=(ToolCall("move", {"direction": "right"}),))
    for play in played_all(lake, lake.tasks("train"), [[move]] * len(lake.tasks("train"))):
        (turn,) = play.trajectory.turns
        question = f"{play.trajectory.prompt}\n<move> right</move>\nWhat comes back?"
        assert answers["train"][question] == turn.step.observation.content

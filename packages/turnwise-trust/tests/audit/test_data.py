"""Data: overlap of splits, contradictions, duplicates and empty prompts."""

from collections.abc import Sequence

import pytest

from asking import Asking, failed, found
from turnwise.types import Action, Task, Trajectory, Verdict
from turnwise_trust.audit.data import data

OVERLAP, TASKS = "overlap of train and held-out tasks", "the tasks"
STORY = "The old lighthouse keeper of Brora wrote each night into a green book with a goose quill"


class Given(Asking):
    """Tasks that are given: a prompt and what is right for each split."""

    def __init__(
        self, train: Sequence[tuple[str, str]], heldout: Sequence[tuple[str, str]]
    ) -> None:
        self.given = {"train": train, "heldout": heldout}

    def tasks(self, split: str) -> Sequence[Task]:
        return [
            Task(f"{split}{number}", prompt, {"sum": right})
            for number, (prompt, right) in enumerate(self.given[split])
        ]

    def oracle(self, task: Task) -> Sequence[Action]:
        return [Action("", answer=task.secret["sum"])]


def test_prompts_that_are_alike_up_to_their_constants_do_not_overlap():
    row = found(data, Asking())[OVERLAP]
    assert (row.passed, row.figure) == (True, 0)


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("Who wrote 'Emma'?", "1 are training tasks to the letter"),
        ("who wrote  “Emma”", "1 but for case, spaces and punctuation"),
    ],
)
def test_a_held_out_task_that_stands_in_training_is_found(prompt: str, said: str):
    environment = Given([("Who wrote 'Emma'?", "Austen")], [(prompt, "Austen")])
    row = failed(data, environment)[OVERLAP]
    assert said in row.note
    assert row.figure == 1


def test_a_task_that_is_nearly_in_training_is_found_by_its_rare_words():
    heldout = [(f"Please say: {STORY}. What was the book's colour?", "green")]
    train = [(f"{STORY}. What was the book's colour?", "green")]
    assert "1 nearly" in failed(data, Given(train, heldout))[OVERLAP].note
    assert found(data, Given(train, [(heldout[0][0], "quill")]))[OVERLAP].passed


def test_contradictory_labels_are_found_where_no_episode_tells_the_tasks_apart():
    pair = [("Who wrote 'Emma'?", "Austen"), ("Who wrote 'Emma'?", "Brontë")]
    row = failed(data, Given(pair, [("Who wrote 'Ulysses'?", "Joyce")]))[TASKS]
    assert "ask the same and expect something else" in row.note


def test_tasks_that_ask_the_same_and_take_each_others_answers_do_not_contradict():
    class Lenient(Given):
        def verify(self, trajectory: Trajectory) -> Verdict:
            right = trajectory.answer in ("Austen", "Jane Austen")
            return Verdict(float(right), right)

    pair = [("Who wrote 'Emma'?", "Austen"), ("Who wrote 'Emma'?", "Jane Austen")]
    assert found(data, Lenient(pair, [("Who wrote 'Ulysses'?", "Joyce")]))[TASKS].passed


def test_duplicates_and_empty_prompts_are_found():
    twice = Given([("Who?", "a")] * 2, [("Where?", "b")])
    assert "1 of the train tasks are there a second time" in failed(data, twice)[TASKS].note
    empty = Given([("  ", "a")], [("Where?", "b")])
    assert "begin with an empty message" in failed(data, empty)[TASKS].note

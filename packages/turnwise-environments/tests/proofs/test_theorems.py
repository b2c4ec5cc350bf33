"""Theorems as they are drawn: true, none of it needless, and different in both splits."""

import itertools
from collections import Counter
from collections.abc import Mapping

import pytest

from environment_playing import prototype
from turnwise.types import Task
from turnwise_environments.measurement import all_tasks, spread
from turnwise_environments.proofs.environment import Proofs
from turnwise_environments.proofs.tasks import ATOMS, Theorem, results
from turnwise_environments.rewards.proofs import Formula, check, parse, written

made = prototype("proofs")
WORLDS = [
    dict(zip(ATOMS, row, strict=True))
    for row in itertools.product([False, True], repeat=len(ATOMS))
]


def holds(formula: Formula, world: Mapping[str, bool]) -> bool:
    """A second judge: Python's own operators."""
    text = written(formula).replace("~", " not ").replace("&", " and ").replace("|", " or ")
    if formula[0] == "->":
        return not holds(formula[1], world) or holds(formula[2], world)
    if "->" not in text:
        return bool(eval(text, {"false": False, **world}))
    if formula[0] == "~":
        return not holds(formula[1], world)
    parts = [holds(part, world) for part in formula[1:]]
    return all(parts) if formula[0] == "&" else any(parts)


def theorem(task: Task) -> Theorem:
    premises = tuple(parse(one) for one in task.secret["premises"])
    steps = int(task.info["steps"])
    return Theorem(premises, parse(task.secret["conclusion"]), task.secret["proof"], steps)


def test_every_theorem_follows_from_all_of_its_premises_and_from_no_fewer(made: Proofs) -> None:
    for task in spread(all_tasks(made), 150):
        found = theorem(task)

        def follows(premises: tuple[Formula, ...], shown: Formula = found.conclusion) -> bool:
            possible = [w for w in WORLDS if all(holds(one, w) for one in premises)]
            return all(holds(shown, world) for world in possible)

        assert follows(found.premises)
        assert any(all(holds(one, world) for one in found.premises) for world in WORLDS)
        for place in range(len(found.premises)):
            assert not follows(found.premises[:place] + found.premises[place + 1 :])


def test_known_proofs_have_as_many_steps_as_they_say_and_nothing_twice(made: Proofs) -> None:
    for task in all_tasks(made):
        found = theorem(task)
        shown = results(check(found.proof, found.premises, found.conclusion))
        assert len(set(shown)) == len(shown) == found.steps
        assert not {formula for formula, _ in shown} & set(found.premises)


def test_no_theorem_of_one_split_is_in_the_other_under_other_names(made: Proofs) -> None:
    train, heldout = (
        {theorem(task).shape for task in made.tasks(split)} for split in ("train", "heldout")
    )
    assert len(train) == len(heldout) == 1000
    assert not train & heldout


def test_tasks_are_of_all_grades_and_their_proofs_of_all_rules(made: Proofs) -> None:
    for split in ("train", "heldout"):
        grades = Counter(task.info["steps"] for task in made.tasks(split))
        assert grades.keys() == {1, 2, 3, 4, 5}
        assert min(grades.values()) >= 80
    rules = {
        line.reason
        for task in all_tasks(made)
        for line in check(task.secret["proof"], theorem(task).premises, theorem(task).conclusion)
    }
    assert rules == {
        *("premise", "assume", "&i", "&e", "|i", "|e", "->i", "->e", "~i", "~e", "~~e", "false-e")
    }


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ((["p -> q", "p"], "q"), (["r", "r -> s"], "s"), True),
        ((["p -> q", "p"], "q"), (["p -> q", "q"], "p"), False),
        ((["p | q"], "q | p"), (["s | p"], "p | s"), True),
        ((["p | q"], "q | p"), (["p | q"], "q | q"), False),
    ],
)
def test_a_shape_is_what_renaming_and_reordering_leave(
    one: tuple[list[str], str], other: tuple[list[str], str], same: bool
) -> None:
    shapes = [
        Theorem(tuple(map(parse, premises)), parse(conclusion), "", 0).shape
        for premises, conclusion in (one, other)
    ]
    assert (shapes[0] == shapes[1]) is same


def test_formulas_are_written_as_they_are_read() -> None:
    for text in ("p & (q & r)", "(p -> q) -> r", "p -> q -> r", "~(p | q) & ~~r", "(p | q) & r"):
        assert written(parse(text)) == text
    assert written(parse("((p & q) & (r))")) == "p & q & r"

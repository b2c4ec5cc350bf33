"""Theorems as they are drawn: true, none of it needless, different in both splits. The environment:
the kernel judges, checks help, and what only looks like work earns nothing."""

import random
from collections import Counter

import pytest

from environment_playing import answered, calling, judged, played, prototype, theorem
from truth_tables import follows
from turnwise.types import Task
from turnwise_environments.choosing import all_tasks, spread
from turnwise_environments.proofs.environment import HOLDS, INSTRUCTIONS, Proofs
from turnwise_environments.proofs.tasks import Theorem, results
from turnwise_environments.rewards.proofs import FALSE, RULES, check, parse, written

made = prototype("proofs", tasks={"count": 200})


def test_every_theorem_follows_from_all_of_its_premises_and_from_no_fewer(made: Proofs) -> None:
    for task in spread(all_tasks(made), 150):
        found = theorem(task)

        assert follows(found.premises, found.conclusion)
        assert not follows(found.premises, FALSE), "they can be true together"
        for place in range(len(found.premises)):
            fewer = found.premises[:place] + found.premises[place + 1 :]
            assert not follows(fewer, found.conclusion)


def test_known_proofs_have_as_many_steps_as_they_say_and_nothing_twice(made: Proofs) -> None:
    for task in all_tasks(made):
        found = theorem(task)
        shown = results(check(found.proof, found.premises, found.conclusion))
        assert len(set(shown)) == len(shown) == found.steps
        assert not {formula for formula, _ in shown} & set(found.premises)


def test_tasks_are_of_all_grades_and_their_proofs_of_all_rules(made: Proofs) -> None:
    for split in ("train", "heldout"):
        grades = Counter(task.info["steps"] for task in made.tasks(split))
        assert grades.keys() == {1, 2, 3, 4, 5}
        assert min(grades.values()) >= 16
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


PREMISES, CONCLUSION = ["p -> q", "~q", "r"], "~p & r"
KNOWN = """\
1. p -> q premise
2. ~q premise
3. r premise
4. p assume
5. q ->e 1 4
6. false ~e 5 2
7. ~p ~i 4 6
8. ~p & r &i 7 3"""
STATED = {"premises": PREMISES, "conclusion": CONCLUSION}
TASK = Task("one", "Prove ~p & r.", {**STATED, "proof": KNOWN}, STATED)


def first(lines: int) -> str:
    return "\n".join(KNOWN.split("\n")[:lines])


def test_another_proof_will_do(made: Proofs) -> None:
    other = KNOWN.replace("8. ~p & r &i 7 3", "8. ~p copy 7\n9. ~p & r &i 8 3")
    for text in (other, other.replace("\n", "; "), other.replace("\n", "\n\n")):
        verdict = judged(made, TASK, answered(text))
        assert (verdict.reward, verdict.parts) == (1.0, {"checked_lines": 1.0, "derived": 1.0})


def test_the_tool_says_what_is_wrong_and_what_is_missing(made: Proofs) -> None:
    wrong = first(4) + "\n5. r ->e 1 4"
    proofs = [wrong, first(5), first(7), KNOWN]
    play = played(made, TASK, *(calling("check", proof=one) for one in proofs))
    assert play.seen[0].startswith(INSTRUCTIONS)
    assert list(play.trajectory.observed) == [
        "line 5: it does not follow by ->e 1 4",
        "5 lines hold; the last line is not the conclusion: it stands on the assumptions [4]",
        "7 lines hold; the last line is not the conclusion: it is another one",
        HOLDS,
    ]


def test_turns_earn_what_they_show_for_the_first_time(made: Proofs) -> None:
    wrong = first(5) + "\n6. false ~e 1 2"
    checks = [calling("check", proof=one) for one in (first(3), wrong, first(6), first(6), KNOWN)]
    turns = judged(made, TASK, *checks, answered("?")).turn_parts
    assert turns["progress"] == [0.0, 0.25, 0.25, 0.0, 0.5, 0.0]
    assert turns["errors"] == [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]


LOOKS_LIKE_WORK = {
    "assumptions": "1. ~p assume\n2. false assume\n3. ~p & r assume",
    "assumptions that are copied": "1. ~p assume\n2. ~p copy 1\n3. ~p & r assume\n4. ~p & r copy 3",
    "on an assumption more": "1. r premise\n2. ~p assume\n3. ~p & r &i 2 1",
    "from a contradiction": "1. false assume\n2. ~p false-e 1\n3. ~p & r false-e 1",
    "what is not asked": "1. r premise\n2. r | p |i 1\n3. r & r &i 1 1\n4. r copy 1",
    "behind a wrong line": "1. p & p premise\n" + KNOWN,
}


@pytest.mark.parametrize("name", LOOKS_LIKE_WORK)
def test_what_is_taken_for_granted_is_no_progress(made: Proofs, name: str) -> None:
    proof = LOOKS_LIKE_WORK[name]
    verdict = judged(made, TASK, calling("check", proof=proof), answered(proof))
    assert verdict.turn_parts["progress"] == [0.0, 0.0]
    assert verdict.parts["derived"] == 0.0


def test_lines_are_counted_up_to_the_first_wrong_one(made: Proofs) -> None:
    wrong = first(3) + "\n\n4. q ->e 1 2\n5. r premise"
    parts = judged(made, TASK, answered(wrong)).parts
    assert parts == {"checked_lines": 3 / 5, "derived": 0.0}
    for nothing in ("", HOLDS):
        verdict = judged(made, TASK, answered(nothing))
        assert (verdict.reward, verdict.success) == (0.0, False)
        assert verdict.parts == {"checked_lines": 0.0, "derived": 0.0}


def test_the_instructions_name_every_rule_and_their_proof_holds() -> None:
    assert all(f"\n{name}: " in INSTRUCTIONS for name in RULES)
    proof = INSTRUCTIONS[INSTRUCTIONS.index("1. p -> q premise") :]
    assert check(proof, [parse("p -> q"), parse("~q")], parse("~p"))


def test_random_actions_are_lines_of_a_proof(made: Proofs) -> None:
    (action,) = made.random_actions(TASK.public(), random.Random(0))
    assert judged(made, TASK, action).parts["checked_lines"] == pytest.approx(3 / 4)

"""Proofs, right and wrong ones; truth tables are the second judge."""

import random

import pytest

from tests.rewards.episodes import answer, episode
from truth_tables import follows
from turnwise.rewards.measuring import PartError
from turnwise_environments.rewards.proofs import Line, ProofError, check, parse, proof

PROOFS: dict[str, tuple[list[str], str, str]] = {
    "modus tollens": (
        ["p -> q", "~q"],
        "~p",
        "1. p -> q premise\n2. ~q premise\n3. p assume\n4. q ->e 1 3\n"
        "5. false ~e 4 2\n6. ~p ~i 3 5",
    ),
    "chain": (
        ["p -> q", "q -> r"],
        "p -> r",
        "1 p -> q premise\n2 q -> r premise\n3 p assume\n4 q ->e 1 3\n5 r ->e 2 4\n"
        "6 p -> r ->i 3 5",
    ),
    "cases": (
        ["p | q", "p -> r", "q -> r"],
        "r | s",
        "1. p | q premise\n2. p -> r premise\n3. q -> r premise\n4. p assume\n5. r ->e 2 4\n"
        "6. q assume\n7. r ->e 3 6\n8. r |e 1 4 5 6 7\n9. r | s |i 8",
    ),
    "swap": (["p & q"], "q & p", "1. p & q premise\n2. q &e 1\n3. p &e 1\n4. q & p &i 2 3"),
    "excluded middle": (
        [],
        "p | ~p",
        "1. ~(p | ~p) assume\n2. p assume\n3. p | ~p |i 2\n4. false ~e 3 1\n5. ~p ~i 2 4\n"
        "6. p | ~p |i 5\n7. false ~e 6 1\n8. ~~(p | ~p) ~i 1 7\n9. p | ~p ~~e 8",
    ),
    "weakening": (
        [],
        "p -> (q -> p)",
        "1. p assume\n2. q assume\n3. q -> p ->i 2 1\n4. p -> q -> p ->i 1 3",
    ),
    "explosion": (["p", "~p"], "q", "1. p premise\n2. ~p premise\n3. false ~e 1 2\n4. q false-e 3"),
}


def checked(premises: list[str], conclusion: str, text: str) -> list[Line]:
    return check(text, [parse(one) for one in premises], parse(conclusion))


@pytest.mark.parametrize("name", PROOFS)
def test_right_proofs_hold_and_every_line_follows_from_what_it_stands_on(name: str) -> None:
    lines = checked(*PROOFS[name])
    for line in lines:
        stands_on = [lines[one - 1].formula for one in line.stands_on]
        assert follows(stands_on, line.formula)


FORMULAS = ["p", "q", "r", "~p", "p & q", "p | q", "p -> q", "false", "~~p", "q -> p", "r | s"]
RULE_NAMES = ["premise", "assume", "copy", "&i", "&e", "|i", "|e", "->i", "->e", "~i", "~e", "~~e"]


def altered(text: str, stream: random.Random) -> str:
    """A proof with one line's formula, rule or cited number replaced, or two lines swapped."""
    rows = [row.split() for row in text.splitlines()]
    row = stream.choice(rows)
    first_cited = next((n for n, word in enumerate(row) if n and word.isdigit()), len(row))
    rule = first_cited - 1
    match stream.randrange(3):
        case 0:
            row[1:rule] = [stream.choice(FORMULAS)]
        case 1:
            row[rule] = stream.choice(RULE_NAMES)
        case _ if first_cited < len(row):
            row[stream.randrange(first_cited, len(row))] = str(stream.randint(1, len(rows)))
        case _:
            other = stream.choice(rows)
            row[1:], other[1:] = other[1:], row[1:]
    return "\n".join(" ".join(row) for row in rows)


@pytest.mark.parametrize("name", PROOFS)
def test_what_an_altered_proof_still_proves_is_true(name: str) -> None:
    """Of 400 altered proofs most are refused; no line of one that holds is wrong."""
    premises, conclusion, text = PROOFS[name]
    stream, refused = random.Random(0), 0
    for _ in range(400):
        changed = altered(text, stream)
        try:
            lines = checked(premises, conclusion, changed)
        except ProofError:
            refused += 1
            continue
        for line in lines:
            assert follows([lines[one - 1].formula for one in line.stands_on], line.formula)
    assert refused > 200


WRONG = {
    "": "1 to 200 lines, not 0",
    "1. q premise": "line 1: it is not among the premises",
    "1. q assume": "stands on the assumptions",
    "2. p premise": "line 1: write its number",
    "1. p": "line 1: write its number",
    "1. p & premise": "a formula ends too early",
    "1. (p premise": "a parenthesis is not closed",
    "1. p ) premise": "is left over",
    "1. P premise": "is no formula",
    "1. & p premise": "'&' is no formula",
    "1. p premise\n2. q magic 1": "is no rule",
    "1. p premise\n2. q copy 1": "does not follow by copy 1",
    "1. p premise\n2. p copy 2": "is no rule with as many lines before",
    "1. p premise\n2. p copy 1 1": "is no rule with as many lines before",
    "1. p premise\n2. p -> p ->i 1 1": "line 1 is not an assumption",
    "1. p premise\n2. p | q |i 1": "is another one",
    "\n".join(f"{n}. p premise" for n in range(1, 202)): "not 201",
    f"1. {'(' * 150}p{')' * 150} premise": "is no formula",
    f"1. {'~' * 5000}p premise": "write its number",
}


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_wrong_proofs_say_what_is_wrong(text: str) -> None:
    with pytest.raises(ProofError, match=WRONG[text]):
        checked(["p"], "q", text)


def test_operators_bind_as_usual() -> None:
    assert parse("~p & q | r -> s") == parse("(((~p) & q) | r) -> s")
    assert parse("p -> q -> r") == parse("p -> (q -> r)") != parse("(p -> q) -> r")
    assert parse("p & q & r") == parse("(p & q) & r")
    assert parse("~~p") == ("~", ("~", ("p",)))
    assert parse("~" * 199 + "p")[0] == "~"


def test_the_part_is_all_or_nothing() -> None:
    premises, conclusion, text = PROOFS["swap"]
    secret = {"premises": premises, "conclusion": conclusion}
    assert proof(episode(answer(text), secret=secret)) == 1.0
    assert proof(episode(answer("1. q & p premise"), secret=secret)) == 0.0
    assert proof(episode(secret=secret)) == 0.0
    for broken in ({}, {"premises": ["P"], "conclusion": "q"}, {"premises": 3, "conclusion": "q"}):
        with pytest.raises(PartError, match="no `premises` and `conclusion`"):
            proof(episode(answer(text), secret=broken))

"""Needs against denials: a sentence about two choices that know nothing of each other."""

import pytest

from tests.algorithms.test_algorithm_registry import SENSELESS
from tests.config.test_claims import CONTRADICTIONS as OF_SECTIONS
from tests.parts.test_checks import CONTRADICTIONS as OF_ALGORITHMS
from tests.parts.test_checks import LACKS
from turnwise.config import load_recipe
from turnwise.conflicts import Claim, Need, check, conflicts
from turnwise.errors import ConfigError

HEIGHT = "a ceiling of four metres"
TALL = Claim("ladder.length = 5", (HEIGHT,), remedy="set ladder.length=2")


@pytest.mark.parametrize(
    ("remedy", "advice"),
    [("", "set ladder.length=2, or leave the other out"), ("go out", "go out, or set ladder.len")],
)
def test_a_need_that_is_denied_is_a_sentence_that_says_what_to_do(remedy: str, advice: str) -> None:
    cellar = Claim("place = 'cellar'", denies={HEIGHT: "has half of it"}, remedy=remedy)
    (sentence,) = conflicts([TALL, cellar])
    assert sentence.startswith(
        "ladder.length = 5 needs a ceiling of four metres, and place = 'cellar' has half of it: "
        + advice
    )
    assert list(conflicts([cellar, TALL])) == [sentence]
    with pytest.raises(ConfigError, match="has half of it"):
        check([TALL, cellar])


def test_without_a_remedy_one_of_the_two_is_left_out_and_no_claim_conflicts_with_itself() -> None:
    (sentence,) = conflicts([Claim("a", ("x",)), Claim("b", denies={"x": "has none"})])
    assert sentence == "a needs x, and b has none: leave one of the two out"
    alone = Claim("a", ("x",), denies={"x": "has none of others"})
    assert list(conflicts([alone, TALL, Claim("c", denies={"y": "has none"})])) == []


@pytest.mark.wing("cluster")
def test_no_need_is_without_a_case() -> None:
    """Each need that turnwise itself knows is denied in one of the tables of refused recipes."""
    told = [message.replace("\\", "") for *_, message in OF_SECTIONS + OF_ALGORITHMS + SENSELESS]
    told += [message.replace("\\", "") for *_, message in LACKS]
    alone = Claim("turnwise.make_learner", (Need.ONE_LEARNER,))
    told += conflicts([alone, *load_recipe("demo", ["cluster.learners=2"]).all_claims()])
    needs = {value for name, value in vars(Need).items() if name.isupper()}
    assert len(needs) > 20
    assert {need for need in needs if not any(f"needs {need}" in one for one in told)} == set()

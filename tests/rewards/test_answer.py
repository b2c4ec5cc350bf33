"""Answers compared with the accepted ones, by somebody who would like a wrong one to pass."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.rewards.answer import exact_match, f1, normalise


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [
        ("tarfile", "tarfile"),
        ("  TarFile. ", "tarfile"),
        ("`tarfile`", "tarfile"),
        ("extractall()", "extractall"),
        ("The Half-Way Girl!", "halfway girl"),
        ("xml.dom.minidom.", "xml.dom.minidom"),
        ("U.S.", "US"),
        ("Washington, D.C.", "Washington DC"),
        ("J. R. R. Tolkien", "J R R Tolkien"),
        ("1,000", "1000"),
        ("New\n  York", "new york"),
        ("A", "a"),
        ("%", "%"),
        ("Zoë", "zoë"),
    ],
)
def test_what_means_the_same_is_right(answer, accepted):
    assert exact_match(answer, [accepted])
    assert exact_match(answer, ["New Zealand", accepted])


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [
        ("tarfile or zipfile", "tarfile"),
        ("tarfile, zipfile", "tarfile"),
        ("tarfile tarfile", "tarfile"),
        ("It is tarfile", "tarfile"),
        ("not tarfile", "tarfile"),
        ("ospath", "os.path"),
        ("os path", "os.path"),
        ("os", "os.path"),
        ("path", "os.path"),
        ("io", "_io"),
        ("init", "__init__"),
        ("getident", "get_ident"),
        ("5", "-5"),
        ("195", "1.95"),
        ("tar file", "tarfile"),
        ("yes and no", "yes"),
        ("*", "%"),
        (".*", "tarfile"),
        ("None", ""),
    ],
)
def test_what_means_something_else_is_wrong(answer, accepted):
    assert not exact_match(answer, [accepted])


@pytest.mark.parametrize("answer", [None, "", " ", "\n\t"])
@pytest.mark.parametrize("accepted", [[""], [" "], [], ["tarfile"]])
def test_no_answer_is_never_right(answer, accepted):
    assert not exact_match(answer, accepted)
    assert f1(answer, accepted) == 0.0


def test_overlap_against_a_count_by_hand():
    assert f1("the cat sat", ["a cat"]) == pytest.approx(2 * (1 / 2) * 1 / (1 / 2 + 1))
    assert f1("b b c", ["b c c", "x"]) == pytest.approx(2 / 3)
    assert f1("tarfile", ["TarFile"]) == 1.0
    assert f1("x", ["y"]) == 0.0
    assert f1("yes it is", ["yes"]) == 0.0
    assert f1("no", ["no way"]) == 0.0
    assert f1("Yes.", ["yes"]) == 1.0


@given(st.text())
def test_normalising_twice_changes_nothing_more(text):
    once = normalise(text)
    assert once == " ".join(once.split())
    assert bool(once) == bool(text.strip())


@given(st.text(min_size=1), st.text(min_size=1))
def test_exact_match_is_symmetric_and_has_full_overlap(left, right):
    assert exact_match(left, [right]) == exact_match(right, [left])
    if exact_match(left, [right]):
        assert f1(left, [right]) == 1.0

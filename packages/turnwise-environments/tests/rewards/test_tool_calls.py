"""Tool calls: how they are read, and ToolRL's reward against a second computation."""

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.types import ToolCall
from turnwise_environments.rewards.toolrl import (
    MAX_CHARACTERS,
    overlap,
    read_calls,
    same_value,
    toolrl_correctness,
    toolrl_format,
    write_calls,
)

NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from([0, 1, 1.0, True, "1", None, [1], {"k": 1}])
CALLS = st.lists(
    st.builds(ToolCall, NAMES, st.dictionaries(st.sampled_from("xyz"), VALUES, max_size=3)),
    max_size=4,
)


def jaccard(first: list[str], second: list[str]) -> Fraction:
    """By pairing equal elements off, one at a time."""
    rest, common = list(second), 0
    for element in first:
        if element in rest:
            rest.remove(element)
            common += 1
    return Fraction(common, len(first) + len(rest)) if first or second else Fraction(1)


def second_correctness(expected: list[ToolCall], given: list[ToolCall]) -> Fraction:
    """The formula of 3.3 step by step, in fractions."""
    if not expected:
        return Fraction(0)
    total = jaccard([call.name for call in expected], [call.name for call in given])
    most, used = Fraction(1), set()
    for call in expected:
        most += 1 + len(call.arguments)
        best, chosen = Fraction(0), None
        for place, other in enumerate(given):
            if place in used or other.name != call.name:
                continue
            points = jaccard(list(call.arguments), list(other.arguments))
            for key in call.arguments:
                if key in other.arguments and canonical(call.arguments[key]) == canonical(
                    other.arguments[key]
                ):
                    points += 1
            if points > best:
                best, chosen = points, place
        if chosen is not None:
            used.add(chosen)
            total += best
    return 6 * total / most - 3


def canonical(value: Any) -> str:
    """A spelling that is the same for values that are equal as JSON."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return repr(value)
    if isinstance(value, (int, float)):
        return f"number {float(value)!r}"
    if isinstance(value, list):
        return f"[{','.join(map(canonical, value))}]"
    return (
        "{" + ",".join(sorted(f"{key!r}:{canonical(entry)}" for key, entry in value.items())) + "}"
    )


@given(CALLS, CALLS)
def test_correctness_is_the_formula(expected: list[ToolCall], given: list[ToolCall]) -> None:
    found = toolrl_correctness(expected, given)
    assert found == pytest.approx(float(second_correctness(expected, given)), abs=1e-12)
    assert -3 <= found <= 3


@given(CALLS)
def test_the_ends_of_the_range(calls: list[ToolCall]) -> None:
    assert toolrl_correctness(calls, calls) == (3.0 if calls else 0.0)
    assert toolrl_correctness(calls, None) == (-3.0 if calls else 0.0)
    assert toolrl_correctness(calls, []) == (-3.0 if calls else 0.0)
    others = [ToolCall("other", call.arguments) for call in calls]
    assert toolrl_correctness(calls, others) == (-3.0 if calls else 0.0)


@given(CALLS, CALLS)
def test_a_call_too_many_never_helps_a_perfect_answer(
    calls: list[ToolCall], more: list[ToolCall]
) -> None:
    if calls and more:
        assert toolrl_correctness(calls, [*calls, *more]) < 3.0


def test_by_hand() -> None:
    """Two calls of three parameters expected; one has the right name and one right value."""
    expected = [ToolCall("a", {"x": 1, "y": 2}), ToolCall("b", {"z": 3})]
    given = [ToolCall("a", {"x": 1, "w": 5})]
    score = 1 / 2 + (1 / 3 + 1)
    assert toolrl_correctness(expected, given) == pytest.approx(6 * score / (1 + 3 + 2) - 3)
    assert overlap(["a", "a", "b"], ["a", "b", "b"]) == 2 / 4
    assert (overlap([], []), overlap(["a"], [])) == (1.0, 0.0)


@given(st.lists(NAMES), st.lists(NAMES))
def test_overlap(first: list[str], second: list[str]) -> None:
    assert overlap(first, second) == pytest.approx(float(jaccard(first, second)))
    assert overlap(first, second) == overlap(second, first)
    assert (overlap(first, second) == 1.0) == (Counter(first) == Counter(second))


@given(VALUES, VALUES)
def test_values_are_equal_as_json(first: Any, second: Any) -> None:
    assert same_value(first, second) == (canonical(first) == canonical(second))


@given(CALLS)
def test_what_is_written_is_read(calls: list[ToolCall]) -> None:
    if calls:
        assert read_calls(write_calls(calls)) == calls
        assert read_calls(f"\n {write_calls(calls)}  \n\n") == calls


UNREADABLE = {
    "": "there is no call",
    " \n ": "there is no call",
    "search(x)": "call 1 is not JSON: Expecting value",
    '{"name": "a", "parameters": {}} and more': "call 2 is not JSON",
    '{"name": "a", "parameters": {}': "call 1 is not JSON",
    '{"name": "a"}': "call 1 is not an object with name and parameters",
    '{"name": "a", "arguments": {}}': "call 1 is not an object",
    '{"name": "a", "parameters": {}, "x": 1}': "call 1 is not an object",
    '[{"name": "a", "parameters": {}}]': "call 1 is not an object",
    '{"name": 1, "parameters": {}}': "name is a string",
    '{"name": "a", "parameters": [1]}': "parameters an object",
    '{"name": "a", "name": "b", "parameters": {}}': "a key is there twice",
    '{"name": "a", "parameters": {"x": NaN}}': "NaN is no JSON number",
    "[" * 10_000: "call 1 is not JSON",
    '{"name": "a", "parameters": {"x": ' + "9" * 5000 + "}}": "call 1 is not JSON",
    " " * (MAX_CHARACTERS + 1): "longer than",
}


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_cannot_be_read_says_why(text: str) -> None:
    with pytest.raises(ValueError, match=UNREADABLE[text]):
        read_calls(text)


FORMS = [
    ("<think>a</think><tool_call>b</tool_call>", ("think", "tool_call"), 1.0),
    (" <think>a\nb</think>\n<tool_call>\nb\n</tool_call>\n", ("think", "tool_call"), 1.0),
    ("<think>use <tool_call> then</think><tool_call>b</tool_call>", ("think", "tool_call"), 1.0),
    ("<think>a</think><tool_call>b</tool_call>", ("think", "response"), 0.0),
    ("<think>a</think><tool_call>b</tool_call><response>c</response>", ("think", "tool_call"), 0.0),
    ("<tool_call>b</tool_call>", ("think", "tool_call"), 0.0),
    ("<tool_call>b</tool_call><think>a</think>", ("think", "tool_call"), 0.0),
    ("<think>a</think>so<tool_call>b</tool_call>", ("think", "tool_call"), 0.0),
    ("<think>a</think><think>a</think><tool_call>b</tool_call>", ("think", "tool_call"), 0.0),
    (
        "<think>a</think><tool_call>b</tool_call><tool_call>b</tool_call>",
        ("think", "tool_call"),
        0.0,
    ),
    ("<think> </think><tool_call>b</tool_call>", ("think", "tool_call"), 0.0),
    ("<think>a</think><tool_call>b", ("think", "tool_call"), 0.0),
    ("", ("think", "tool_call"), 0.0),
    ("<think>a" * 2000, ("think", "tool_call"), 0.0),
]


@pytest.mark.parametrize(("text", "fields", "form"), FORMS)
def test_format(text: str, fields: tuple[str, ...], form: float) -> None:
    assert toolrl_format(text, fields) == form

"""Tool calls, how they are read, and ToolRL's reward: every granularity against a second
computation by the published formulas, on drawn calls and altered copies of them."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewards.episodes import episode
from turnwise.rewards.measuring import PartError
from turnwise.types import Action, ToolCall, Turn
from turnwise_environments.rewards.toolrl import (
    MAX_CHARACTERS,
    calls_of,
    read_calls,
    same_value,
    toolrl_calls,
    toolrl_correctness,
    toolrl_form,
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


def published(expected: list[ToolCall], given: list[ToolCall], granularity: str) -> Fraction:
    """The paper's formulas (3.3) step by step, in fractions."""
    if not expected:
        return Fraction(0)
    if granularity == "coarse":
        same = [(one.name, canonical(one.arguments)) for one in expected] == [
            (one.name, canonical(one.arguments)) for one in given
        ]
        return Fraction(3 if same else -3)
    total = jaccard([call.name for call in expected], [call.name for call in given])
    most, used = Fraction(1), set()
    for call in expected:
        wanted = call.arguments
        most += {"fine": 1 + len(wanted), "names": 0}.get(granularity, 1)
        best, chosen = Fraction(0), None
        for place, other in enumerate(given):
            if place in used or other.name != call.name:
                continue
            found = other.arguments
            points = jaccard(list(wanted), list(found))
            if granularity == "intermediate":
                points = Fraction(canonical(wanted) == canonical(found))
            elif granularity == "names":
                points = Fraction(0)
            elif granularity == "fine":
                points += sum(
                    key in found and canonical(found[key]) == canonical(wanted[key])
                    for key in wanted
                )
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


@pytest.mark.parametrize("granularity", ["fine", "intermediate", "coarse", "parameters", "names"])
@settings(max_examples=50)
@given(CALLS, CALLS)
def test_correctness_is_the_formula(
    granularity: Any, expected: list[ToolCall], given: list[ToolCall]
) -> None:
    changed = [ToolCall(one.name, {**one.arguments, "x": 1}) for one in expected]
    for calls in (given, expected, expected[1:], expected[::-1], [*expected, *given], changed):
        found = toolrl_correctness(expected, calls, granularity)
        assert found == pytest.approx(float(published(expected, calls, granularity)), abs=1e-12)
        assert -3 <= found <= 3
    unread = toolrl_correctness(expected, None, granularity)
    assert unread == published(expected, [], granularity)


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
    ("<think>a</think>b</think><tool_call>c</tool_call>", ("think", "tool_call"), 0.0),
    (f"<think>{'word ' * 4000}</think><tool_call>b", ("think", "tool_call"), 0.0),
]


@pytest.mark.parametrize(("text", "fields", "form"), FORMS)
def test_format(text: str, fields: tuple[str, ...], form: float) -> None:
    assert toolrl_format(text, fields) == form


EXPECTED = [ToolCall("a", {"x": 1, "y": 2}), ToolCall("b", {"z": 3})]


def test_coarse_wants_the_order() -> None:
    assert toolrl_correctness(EXPECTED, EXPECTED[::-1], "coarse") == -3.0
    assert toolrl_correctness(EXPECTED, EXPECTED[::-1], "intermediate") == 3.0
    assert (
        toolrl_correctness([ToolCall("a", {"x": 1})], [ToolCall("a", {"x": True})], "coarse") == -3
    )


def calling(text: str) -> Turn:
    written = f"<think>so</think><tool_call>{text}</tool_call>"
    return Turn(Action(written, calls=(ToolCall("tool_call", {"calls": text}),)))


SECRETS: list[Any] = [
    write_calls(EXPECTED),
    [[write_calls(EXPECTED[:1])], [write_calls(EXPECTED[1:])]],
    (write_calls(EXPECTED),),
]


@pytest.mark.parametrize("calls", SECRETS)
def test_the_part_reads_expected_and_made_calls(calls: Any) -> None:
    one, other = (calling(write_calls([call])) for call in EXPECTED)
    secret = {"calls": calls}
    assert toolrl_calls(episode(one, other, secret=secret)) == 3.0
    assert toolrl_calls(episode(one, calling("x"), secret=secret), "coarse") == -3.0
    assert toolrl_calls(episode(secret=secret)) == -3.0
    assert calls_of(episode(one, other)) == EXPECTED == read_calls(SECRETS[0])


def test_where_nothing_is_expected_it_is_0_and_without_a_secret_no_number() -> None:
    assert toolrl_calls(episode(calling("x"), secret={"calls": ""})) == 0.0
    with pytest.raises(PartError, match="has no `calls`"):
        toolrl_calls(episode(calling("x")))


def test_form_is_that_of_every_turn() -> None:
    good, bad = calling("x"), Turn(Action("<tool_call>x</tool_call>"))
    said = Turn(Action("<think>a</think><answer>b</answer>", answer="b"))
    assert toolrl_form(episode(good, said)) == 1.0
    assert toolrl_form(episode(good, bad)) == toolrl_form(episode()) == 0.0

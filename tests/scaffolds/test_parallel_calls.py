"""Several calls in one turn: their order, their ids, one observation, and a budget for each."""

import asyncio

import pytest

from tests.fakes import Capitals, byte_tokenizer
from tests.rollout.playing import TOKENIZER, encode, rolling
from turnwise.config import RolloutConfig
from turnwise.errors import ConfigError
from turnwise.scaffolds.base import Scaffold
from turnwise.scaffolds.registry import SCAFFOLDS
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.tokens import Source
from turnwise.types import Action, Outcome, ToolCall, Trajectory

ENVIRONMENT = Capitals()
CALLS = tuple(ToolCall("lookup", {"country": land}) for land in ("Italy", "Atlantis", "Spain"))
SCRIPT = [
    Action("", "all at once", CALLS),
    Action("", "once more", CALLS[2:]),
    Action("", answer="Paris"),
]


@pytest.fixture(params=["tags", pytest.param("react", marks=pytest.mark.wing("environments"))])
def scaffold(request: pytest.FixtureRequest) -> Scaffold:
    kind = SCAFFOLDS.get(request.param)
    return kind(TOKENIZER, ENVIRONMENT.tools(), instructions="", parallel_calls=True)


def play(scaffold: Scaffold, max_tool_calls: int) -> Trajectory:
    script = iter(SCRIPT)
    limits = RolloutConfig(max_turn_tokens=200, max_tool_calls=max_tool_calls)
    runner = rolling(
        ENVIRONMENT, lambda *_: scaffold.render(next(script)), limits, scaffold=scaffold
    )
    (group,) = asyncio.run(runner.collect(ENVIRONMENT.tasks("train")[:1], 1, 0, "test"))
    return group.trajectories[0]


def test_calls_keep_their_order_and_ids_and_come_back_in_one_observation(
    scaffold: Scaffold,
) -> None:
    played = play(scaffold, max_tool_calls=4)
    assert played.outcome == Outcome.SUCCESS
    first = played.turns[0]
    assert [call.id for call in first.action.calls] == ["0.0", "0.1", "0.2"]
    assert [call.id for call in played.turns[1].action.calls] == ["1.0"]
    assert [call.arguments["country"] for call in first.action.calls] == [
        call.arguments["country"] for call in CALLS
    ]
    assert [result.call.id for result in first.step.results] == ["0.0", "0.1", "0.2"]
    assert [result.ok for result in first.step.results] == [True, False, True]
    tokens = played.tokens
    shown = TOKENIZER.decode(tokens.ids[tokens.source == Source.TOOL].tolist())
    madrid = "The capital is Madrid."
    expected = ("The capital is Rome.", "Error: no country 'Atlantis'", madrid, madrid)
    assert shown == "".join(f" {text}" for text in expected)
    own = TOKENIZER.decode(tokens.ids[tokens.mask].tolist())
    assert own == "".join(TOKENIZER.decode(scaffold.render(action)) for action in SCRIPT)


def test_the_budget_counts_each_call(scaffold: Scaffold) -> None:
    played = play(scaffold, max_tool_calls=2)
    assert played.outcome == Outcome.TRUNCATED_TOOL_CALLS
    assert played.tool_calls == 0, "none of a turn's calls is run when all would be too many"


def test_tags_of_several_calls_and_what_is_wrong_with_them() -> None:
    tools = ENVIRONMENT.tools()
    scaffold = TagsScaffold(TOKENIZER, tools, instructions="", parallel_calls=True)
    assert scaffold.stop == ("</answer>",)

    two = "<lookup>a</lookup> and <lookup>b</lookup>"
    assert [call.arguments["country"] for call in scaffold.parse(encode(two)).calls] == ["a", "b"]
    for text, problem in (
        (f"{two}<answer>c</answer>", "several actions"),
        (f"{two}<lookup>never closed", "a tag is not closed"),
        ("<lookup>a <lookup>b</lookup></lookup>", "a tag is not closed"),
        (f"{two}<lookup> </lookup>", "<lookup> is empty"),
    ):
        action = scaffold.parse(encode(text))
        assert problem in action.error
        assert not action.calls


def test_parallel_calls_need_a_token_that_ends_the_turn() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.eos_token = None
    with pytest.raises(ConfigError, match="no eos_token"):
        TagsScaffold(tokenizer, [], parallel_calls=True)

"""Contexts that follow one another: what is kept, that each token is trained once and where it was
sampled, and that a run with them goes on exactly (promises 1, 2 and 7)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import Capitals, Letters, small_model
from tests.rollout.playing import TOKENIZER, decode, encode, rolling
from turnwise.config import RolloutConfig
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.errors import NotSupportedError
from turnwise.rollout.context import COMPACTIONS, REQUEST, SHOWN, drop, truncate
from turnwise.tokens import Segment, Source, Tokens
from turnwise.tools.tool import tool
from turnwise.types import Action, Outcome, Step, Task, ToolCall, Trajectory, Turn

MODES = ("drop", "truncate", "summarise")


class Encyclopedia(Capitals):
    """Says the same at length."""

    @tool
    def lookup(self, country: str) -> str:
        """Look a country up."""
        return f"{country} " + "has rivers and hills. " * 4


def play(mode: str, lookups: int, **changes: int) -> Trajectory:
    """One episode in which the policy looks countries up and answers; asked for a summary, it gives
    one."""
    environment = Encyclopedia()
    turns = iter(
        [*(f"<lookup> land {n}</lookup>" for n in range(lookups)), "<answer> Paris</answer>"]
    )
    asked: list[int] = []

    def policy(session: str, prompt: list[int]) -> Sequence[int]:
        wanted = encode(REQUEST)
        if any(prompt[n : n + len(wanted)] == wanted for n in range(len(prompt))):
            asked.append(len(prompt))
            return encode(f"summary {len(asked)}")
        return encode(next(turns))

    sizes = {"max_turns": 20, "max_turn_tokens": 40, "max_tokens": 520, "max_tool_calls": 99}
    limits = RolloutConfig(**{**sizes, **changes, "max_ungraded_share": 1.0})
    limits = limits.model_copy(update={"context": mode})  # also where a recipe may not ask for it
    runner = rolling(environment, policy, limits, seats=1)
    (group,) = asyncio.run(runner.collect(environment.tasks("train")[:1], 1, 0, "test"))
    return group.trajectories[0]


def record(lengths: Sequence[tuple[int, int]]) -> Tokens:
    """A prompt of three tokens, and turns of so many sampled and observed tokens; every token has
    an id of its own."""
    tokens = Tokens.empty()

    def fresh(count: int) -> list[int]:
        return list(range(len(tokens), len(tokens) + count))

    tokens = tokens.with_segments([Segment(fresh(3), Source.USER)], 0)
    for turn, (sampled, observed) in enumerate(lengths):
        tokens = tokens.with_sampled(fresh(sampled), [-1.0] * sampled, 7, turn)
        tokens = tokens.with_segments([Segment(fresh(1), Source.TEMPLATE)], turn)
        tokens = tokens.with_segments([Segment(fresh(observed), Source.TOOL)], turn)
    return tokens


def test_drop_keeps_the_prompt_and_the_latest_turns() -> None:
    tokens = record([(2, 3), (2, 3), (2, 0)])
    assert drop(tokens, 9).tolist() == [0, 1, 2, *range(15, 18)]
    assert drop(tokens, 12).tolist() == [0, 1, 2, *range(9, 18)]
    assert drop(tokens, 0).tolist() == [0, 1, 2, *range(15, 18)], "the last turn always stays"
    assert drop(tokens, 99).tolist() == list(range(18))


def test_truncate_cuts_the_earliest_observations_first() -> None:
    tokens = record([(1, 40), (1, 40), (1, 0)])
    first, second = [*range(5 + SHOWN, 45)], [*range(47 + SHOWN, 87)]
    places = set(range(len(tokens)))
    assert set(truncate(tokens, 70).tolist()) == places - set(first)
    assert set(truncate(tokens, 60).tolist()) == places - set(first) - set(second)
    assert set(truncate(tokens, 999).tolist()) == places


@settings(max_examples=60)
@given(
    st.sampled_from(MODES),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 40)), min_size=1, max_size=8),
    st.integers(0, 120),
)
def test_whatever_is_kept_each_sampled_token_is_the_models_once(
    mode: str, lengths: list[tuple[int, int]], room: int
) -> None:
    tokens = record(lengths)
    sampled = tokens.ids[tokens.mask].tolist()
    for _ in range(3):
        before = tokens.ids[tokens.spans[-1]].tolist()
        tokens = tokens.with_context(COMPACTIONS[mode](tokens, room))
        after = tokens.ids[tokens.spans[-1]].tolist()
        assert [token for token in before if token in set(after)] == after, "in their order"
        tokens = tokens.with_sampled([len(tokens)], [-1.0], 8, len(lengths))
        lengths = [*lengths, (1, 0)]
        sampled.append(int(tokens.ids[-1]))
    assert tokens.ids[tokens.mask].tolist() == sampled
    assert len(set(sampled)) == len(sampled)
    assert np.isnan(tokens.logprob[~tokens.mask]).all()
    assert (tokens.version[~tokens.mask] == -1).all()
    assert not (tokens.copied & tokens.mask).any()
    assert sum(span.stop - span.start for span in tokens.spans) == len(tokens)


def test_dropped_turns_are_gone_and_what_is_left_stands_as_it_was() -> None:
    assert play("fail", 8).outcome == Outcome.TRUNCATED_TOKENS
    played = play("drop", 8)
    assert played.outcome == Outcome.SUCCESS
    tokens = played.tokens
    assert len(tokens.contexts) > 1
    assert all(span.stop - span.start <= 520 for span in tokens.spans)
    last = decode(tokens.ids[tokens.spans[-1]])
    assert last.startswith("Capital of France?\n<lookup> land ")
    assert "land 0" not in last
    assert last.endswith("<answer> Paris</answer>")
    turns = range(9)
    own = [decode(tokens.ids[tokens.mask & (tokens.turn == turn)]) for turn in turns]
    assert own == [turn.action.text for turn in played.turns], "each turn is trained once"


def test_truncated_observations_leave_all_turns_in_place() -> None:
    played = play("truncate", 8)
    assert played.outcome == Outcome.SUCCESS
    text = decode(played.tokens.ids[played.tokens.spans[-1]])
    for number in range(8):
        assert f"<lookup> land {number}</lookup>" in text
    assert "<information> land 0 has rive</information>" in text
    assert " land 7 has rivers and hills. has rivers" in text


def test_a_summary_is_a_sampled_turn_that_the_next_context_begins_with() -> None:
    played = play("summarise", 6)
    assert played.outcome == Outcome.SUCCESS
    summaries = [n for n, turn in enumerate(played.turns) if turn.action.summary]
    assert len(summaries) == len(played.tokens.contexts) - 1 > 1
    tokens = played.tokens
    for number, turn in enumerate(summaries):
        said = f"summary {number + 1}"
        assert played.turns[turn] == Turn(Action(said, summary=True))
        assert decode(tokens.ids[tokens.mask & (tokens.turn == turn)]) == said
        span = tokens.spans[number + 1]
        text = decode(tokens.ids[span])
        assert text.startswith(f"Capital of France?\n{said}\n<information> land ")
        copies = (tokens.source[span] == Source.INHERITED) & (tokens.turn[span] == turn)
        assert decode(tokens.ids[span][copies]) == said
    assert not (tokens.source == Source.ENVIRONMENT).any()
    asked = decode(tokens.ids[tokens.source == Source.USER])
    assert asked.count(REQUEST) == len(summaries)
    answers = [
        turn.step.results[0].content for turn in played.turns if turn.step and turn.action.calls
    ]
    assert len(answers) == 6, "no observation is lost"


def test_what_has_no_room_in_a_new_context_either_is_truncated() -> None:
    for mode in MODES:
        assert play(mode, 4, max_tokens=130).outcome == Outcome.TRUNCATED_TOKENS
    assert play("summarise", 6, max_turns=3).outcome == Outcome.TRUNCATED_TURNS
    assert not any(turn.action.summary for turn in play("summarise", 6, max_turns=3).turns)


def test_the_state_before_a_turn_is_what_was_shown_last_whatever_was_summed_up() -> None:
    call = Turn(Action("", calls=(ToolCall("look", {}),)), Step())
    turns = call, Turn(Action("so far", summary=True)), call
    played = Trajectory(Task("t", "the task"), "g", 0, 0, turns=turns)
    assert played.states == ("the task", "\n(to be summed up)", "")


@pytest.mark.wing("algorithms")
def test_episodes_of_several_contexts_are_not_branched_from() -> None:
    from turnwise_algorithms.branching import branch_at

    played = replace(play("drop", 8), snapshots=(b"",))
    with pytest.raises(NotSupportedError, match="several contexts"):
        branch_at(played, 0)


@pytest.mark.parametrize("mode", MODES)
def test_every_token_was_sampled_in_exactly_its_context(mode: str) -> None:
    """The engine's log-probabilities are those of the model, of each token after what stands before
    it in its own context."""
    model = small_model(TOKENIZER)
    sizes = {"max_turns": 12, "max_turn_tokens": 16, "max_tokens": 500}
    limits = RolloutConfig(**sizes, context=mode)
    engine = EmbeddedEngine(model, TOKENIZER, max_sequences=2, max_tokens=500, deterministic=True)
    environment = Letters()
    runner = rolling(environment, engine, limits)

    async def collected() -> list[Trajectory]:
        (group,) = await runner.collect(environment.tasks("train")[:1], 2, 0, "test")
        await engine.stop()
        return group.trajectories

    for played in asyncio.run(collected()):
        tokens = played.tokens
        assert len(tokens.contexts) > 2
        for span in tokens.spans:
            assert span.stop - span.start <= 500
            with torch.no_grad():
                ids = torch.tensor(tokens.ids[span])[None]
                logprobs = model(ids).logits[0, :-1].log_softmax(-1)
            own = logprobs.gather(1, ids[0, 1:, None])[:, 0].numpy()
            chosen = tokens.mask[span][1:]
            np.testing.assert_allclose(own[chosen], tokens.logprob[span][1:][chosen], atol=1e-5)

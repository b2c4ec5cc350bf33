"""Equal requests are one call; what is late, unreachable or malformed is missing, and counted."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from judging_library import asker
from turnwise.chat.endpoint import NoWordsError, Reply
from turnwise.chat.recording import Recording
from turnwise.errors import InfrastructureError
from turnwise_judges.asking import Asker, Counts, Limits, UnreadableReplies
from turnwise_judges.base import Judgement, Message
from turnwise_judges.models import ScriptedModel, example_reply
from turnwise_judges.pointwise import Score
from turnwise_judges.prompt import Request


def request(data: str = "a", question: str = "How good?") -> Request[float]:
    return Request({"agent": data}, question, Score(0, 10))


def ask(one: Asker, *requests: Request[float]) -> list[Judgement[float]]:
    async def together() -> list[Judgement[float]]:
        return list(await asyncio.gather(*map(one.ask, requests)))

    return asyncio.run(together())


class Slow:
    """A model that answers after a moment, and knows how many calls were under way at once."""

    identity = "slow"

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.now, self.most = seconds, 0, 0
        self.cancelled = 0

    async def complete(self, messages: Sequence[Message], seed: int | None = None) -> Reply:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.now -= 1
        return Reply(example_reply(messages), tokens=100)


def test_equal_requests_are_one_call() -> None:
    one = asker(example_reply)
    found = ask(one, request(), request(), request("b"), request())
    assert [judgement.value for judgement in found] == [5.0] * 4
    assert (one.counts.calls, one.counts.cache_hits) == (2, 2)
    assert ask(one, request("b"))[0] == Judgement(5.0, "in a few words")
    assert (one.counts.calls, one.counts.cache_hits) == (2, 3)


def test_answers_are_kept_in_a_file_whatever_the_seed(tmp_path: Path) -> None:
    file = tmp_path / "judge" / "answers.jsonl"

    def judge(name: str, seed: int) -> Asker:
        model = ScriptedModel(example_reply, name)
        return Asker(model, Limits(), Recording(file, "the judge"), seed)

    first = judge("a", 0)
    ask(first, request())
    again = judge("a", 1)
    assert ask(again, request())[0].value == 5.0
    assert (again.counts.calls, again.counts.cache_hits) == (0, 1)
    other = judge("b", 0)
    ask(other, request())
    assert other.counts.calls == 1, "another model is another judge"
    file.write_text(file.read_text().replace("5.0", "50.0") + "\n{cut")
    damaged = judge("a", 0)
    assert ask(damaged, request())[0].value == 5.0
    assert damaged.counts.calls == 1, "what may not stand there is asked for again"


def test_a_malformed_reply_is_asked_for_once_more_with_the_reason() -> None:
    said: list[str] = []

    def script(messages: Sequence[Message]) -> str:
        said.append(messages[-1]["content"])
        return "Seven." if len(said) == 1 else example_reply(messages)

    one = asker(script)
    assert ask(one, request())[0].value == 5.0
    assert "was refused: it is not a JSON object" in said[1]
    assert "Seven" not in said[1], "what was said is not said again: it may come from the data"
    assert (one.counts.calls, one.counts.malformed, one.counts.missing) == (2, 1, 0)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"score": 11}, "the score is not between 0 and 10"),
        ({"score": "good"}, "the score is not a number"),
        ({"nonce": "0" * 16}, "it does not bear the mark"),
    ],
)
def test_what_stays_malformed_is_missing(change: dict[str, Any], problem: str) -> None:
    one = asker(lambda messages: json.dumps(json.loads(example_reply(messages)) | change))
    judgement = ask(one, request())[0]
    assert judgement.value is None
    assert judgement.problem == f"its reply is malformed: {problem}"
    with pytest.raises(InfrastructureError, match="the judge: its reply is malformed"):
        judgement.required()
    assert (one.counts.calls, one.counts.malformed, one.counts.missing) == (2, 2, 1)
    assert one.counts.unreadable == 1
    ask(one, request())
    assert one.counts.calls == 4, "a missing judgement is not kept"


def test_a_late_reply_is_missing_and_its_call_is_cancelled() -> None:
    model = Slow(seconds=3600)
    one = asker(model, Limits(seconds=0.01))
    judgement = ask(one, request())[0]
    assert (judgement.value, judgement.problem) == (None, "no reply within 0.01 s")
    assert (model.cancelled, one.counts.late, one.counts.calls) == (1, 1, 1)


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (InfrastructureError("the judge at nowhere: gone"), (0, 1, 0)),
        (NoWordsError("the judge: an answer without words"), (1, 0, 1)),
    ],
)
def test_an_unreachable_model_is_missing_and_one_that_says_nothing_unreadable(
    error: InfrastructureError, counted: tuple[int, int, int]
) -> None:
    def failing(messages: Sequence[Message]) -> str:
        raise error

    one = asker(failing)
    assert ask(one, request())[0] == Judgement(None, problem=str(error))
    counts = one.counts
    assert (counts.unreadable, counts.unreachable, counts.malformed) == counted
    assert counts.missing == 1


def test_a_bug_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        ask(asker(lambda messages: str(1 / 0)), request())


def test_calls_under_way_are_bounded() -> None:
    model = Slow()
    one = asker(model, Limits(max_concurrent=3))
    ask(one, *(request(str(n)) for n in range(10)))
    assert model.most == 3


def test_a_budget_of_calls_is_exact() -> None:
    one = asker(Slow(), Limits(max_calls=4))
    found = ask(one, *(request(str(n)) for n in range(6)))
    assert [judgement.value is None for judgement in found] == [False] * 4 + [True] * 2
    assert found[-1].problem == "its budget of 4 calls is spent: raise judge.max_calls"
    assert (one.counts.calls, one.counts.refused, one.counts.missing) == (4, 2, 2)
    assert ask(one, request("0"))[0].value == 5.0, "what is known costs nothing"


def test_no_call_begins_when_the_tokens_are_spent() -> None:
    one = asker(Slow(), Limits(max_tokens=150, max_concurrent=1))
    found = ask(one, *(request(str(n)) for n in range(3)))
    assert [judgement.value is None for judgement in found] == [False, False, True]
    assert "budget of 150 tokens is spent" in found[2].problem
    assert one.counts.tokens == 200


def test_a_cancelled_request_does_not_hold_up_an_equal_one() -> None:
    model = Slow(seconds=3600)
    one = asker(model)

    async def work() -> Judgement[float]:
        first = asyncio.create_task(one.ask(request()))
        second = asyncio.create_task(one.ask(request()))
        while not model.now:
            await asyncio.sleep(0)
        model.seconds = 0
        first.cancel()
        return await second

    assert asyncio.run(work()).value == 5.0
    assert model.cancelled == 1


def test_what_judging_took() -> None:
    ticks = iter(range(100))
    model = ScriptedModel(example_reply)
    one = Asker(model, Limits(), Recording(None, "j"), 0, clock=lambda: float(next(ticks)))
    ask(one, request(), request(), request("b"))
    assert one.counts.seconds == 2.0
    metrics = one.counts.metrics()
    taken = [metrics[f"judge/{name}"] for name in ("requests", "calls", "cache_hits")]
    assert taken == [3, 2, 1]
    assert metrics["judge/tokens"] > 100
    assert "judge/seconds" not in metrics, "metrics have no times: equal runs have equal metrics"


@pytest.mark.parametrize(
    ("steps", "warned"),
    [
        ([(0, 64)] * 10, None),
        ([(0, 64)] * 9 + [(6, 64)], 10),
        ([(0, 64)] * 9 + [(1, 64)], None),
        ([(20, 64)] * 10, None),
        ([(20, 64), (20, 64), (60, 64)], 3),
        ([(64, 64)], None),
        ([(0, 0), (64, 64), (64, 64)], None),
        ([(60, 64), (0, 64), (0, 64)], None),
        ([(12 * step, 64) for step in range(1, 6)], 3),
    ],
)
def test_a_rise_of_unreadable_replies_is_told_once(
    steps: list[tuple[int, int]], warned: int | None
) -> None:
    counts = Counts()
    alarm, said = UnreadableReplies(counts), []
    for step, (unreadable, requests) in enumerate(steps, 1):
        counts.unreadable += unreadable
        counts.requests += requests
        said.append(alarm(step))
    told = list(filter(None, said))
    assert [f"RL step {warned} " in text for text in told] == [True] * (warned is not None)


def test_a_run_that_goes_on_compares_with_the_steps_before_it() -> None:
    """Each process counts from 0: here three of them asked, the last one goes on."""
    asked = [(1, 64), (2, 128), (3, 192), (1, 64), (1, 128)]
    timing = [{"judge/unreadable": n, "judge/requests": of} for n, of in asked]
    alarm = UnreadableReplies(Counts(requests=64, unreadable=20), [{"step": 0}, *timing])
    assert "20 of 64 requests in no usable form, 4 of 320 before" in alarm(7)

"""What success costs, what it would be with less, and what was wasted: by hand and by counting."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.graded import graded
from turnwise.config import PriceConfig
from turnwise.errors import NotSupportedError
from turnwise.evaluation.effort import (
    POINTS,
    budgets,
    calls,
    cost,
    effort,
    plot_budgets,
    without_evidence,
)
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import (
    Action,
    Observation,
    Outcome,
    Step,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
)


def episode(
    success: bool,
    queries: Sequence[str] = (),
    sampled: int = 1,
    shown: str = "nothing",
    secret: Sequence[str] | None = ("Paris",),
) -> Trajectory:
    """An episode with a search for each query, each of which shows the same."""
    turns = []
    for query in queries:
        call = ToolCall("search", {"query": query})
        step = Step(Observation(shown), (ToolResult(call, shown),))
        turns.append(Turn(Action(query, calls=(call,)), step))
    turns.append(Turn(Action("", answer="Paris"), Step(done=True)))
    tokens = Tokens.empty().with_sampled([5] * sampled, [0.0] * sampled, 0, 0)
    task = Task(str(queries), "?", {} if secret is None else {"answers": list(secret)})
    return graded(success, task, tokens=tokens, turns=tuple(turns))


def test_cost_is_what_was_used_times_its_prices() -> None:
    shown = Tokens.empty().with_segments([Segment([7] * 30, Source.USER)], 0)
    played = [
        replace(one, tokens=shown.with_sampled([5] * 10, [0.0] * 10, 0, 0))
        for one in (episode(True, ["q", "q"]), episode(False, ["q"]))
    ]
    assert cost(played, 1800.0, PriceConfig(hour=2.0))["total"] == 1.0
    assert cost(played, 1.0, PriceConfig(million_sampled_tokens=1e6))["total"] == 20
    assert cost(played, 1.0, PriceConfig(million_read_tokens=1e6))["total"] == 60
    priced = PriceConfig(tool_call=0.5)
    assert cost(played, 1.0, priced) == {"total": 1.5, "per_success": 1.5}
    assert cost(played[1:], 1.0, priced)["per_success"] is None


def test_budget_curves_against_counting() -> None:
    generator = np.random.default_rng(0)
    played = [
        episode(bool(success), ["q"] * calls, int(sampled))
        for success, calls, sampled in zip(
            generator.integers(0, 2, 300),
            generator.integers(0, 4, 300),
            generator.integers(1, 500, 300),
            strict=True,
        )
    ]
    played.append(graded(None, "u"))
    curves = budgets(played)
    used = {
        "tool_calls": lambda one: one.tool_calls,
        "turns": lambda one: len(one.turns),
        "tokens": lambda one: len(one.tokens),
    }
    for name, amount in used.items():
        for budget, success in curves[name]:
            within = [one.outcome == Outcome.SUCCESS and amount(one) <= budget for one in played]
            assert success == pytest.approx(sum(within) / 300), name
    assert [budget for budget, _ in curves["tool_calls"]] == [0, 1, 2, 3]
    assert len(curves["tokens"]) == POINTS
    ends = {curve[-1][1] for curve in curves.values()}
    assert ends == {np.mean([one.outcome == Outcome.SUCCESS for one in played[:-1]])}


def test_wasted_calls_by_hand() -> None:
    """Four calls, then one; two of the five were made before; the oracle needs two, and one. A call
    that is made again and shows something else is no repetition."""

    def oracle(task: Task) -> list[Action]:
        if "none" in task.id:
            raise NotSupportedError("no oracle")
        count = 2 if "a" in task.id else 1
        return [Action("", calls=(ToolCall("search", {}),))] * count + [Action("", answer="x")]

    played = [episode(True, "abab"), episode(True, "c")]
    found = calls(played, oracle)
    assert found == {"made": 2.5, "needed": 1.5, "beyond_need": 1.0, "repeated": 0.4}
    other = Step(Observation("news"), (ToolResult(ToolCall("search", {"query": "a"}), "news"),))
    turns = played[0].turns
    news = replace(played[0], turns=(*turns[:2], replace(turns[2], step=other), *turns[3:]))
    assert calls([news], None)["repeated"] == 0.25
    for blind in (calls([episode(True, ["none"])], fails) for fails in (oracle, lambda _: 1 / 0)):
        assert blind == {"made": 1, "needed": None, "beyond_need": None, "repeated": 0}
    with pytest.raises(FileNotFoundError):
        calls([episode(True, "a")], lambda task: [Action(Path("/none", task.id).read_text())])
    assert set(calls([], oracle).values()) == {None}
    assert calls(played, None)["needed"] is None


def test_success_without_evidence() -> None:
    """A longer word is no evidence, punctuation and case are no matter."""
    played = [
        episode(True, "a", shown="The capital is PARIS."),
        episode(True, "a", shown="Parisian ways"),
        episode(True),
        episode(True, "a", secret=None),
    ]
    assert without_evidence(played) == {"successes": 3, "without": 2}
    assert without_evidence(played[3:]) is None
    assert effort([*played, episode(False)], None)["without_evidence"]["successes"] == 3


def test_the_cost_of_a_success_includes_failures() -> None:
    found = effort([episode(True, sampled=10), episode(False, sampled=30)], None)
    assert found["tokens_per_success"] == 40
    assert effort([episode(False)], None)["tokens_per_success"] is None


def test_the_plot_is_an_image(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    played = [episode(True, "ab"), episode(True), episode(False)]
    evaluations = {"cold_start": effort(played[1:], None), "trained": effort(played, None)}
    plot_budgets(evaluations, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")

"""Environments derived from others: rules for consequential tools (what is held back, what is
counted, and that it is saved), tools that a recipe adds, and tools that are made slow."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

import pytest

from tests.fakes import Capitals
from turnwise.config import LatencyConfig, load_recipe
from turnwise.environments.base import Environment, Split
from turnwise.environments.derived import equipped, guarded, slow
from turnwise.environments.registry import environment_of, make_environment
from turnwise.errors import ConfigError, ToolError
from turnwise.tools.tool import consequential, tool
from turnwise.types import Action, Step, Task, ToolCall, Trajectory, Verdict


class Outbox(Environment):
    """Mails that were sent, and a drawer that can be emptied."""

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(split, "Send a mail.")]

    async def reset(self, task: Task, seed: int) -> Any:
        self.sent: list[str] = []
        return await super().reset(task, seed)

    @tool
    @consequential("send")
    async def send_mail(self, text: str) -> str:
        """Send."""
        if not text:
            raise ToolError("the mail is empty")
        self.sent.append(text)
        return "sent"

    @tool
    @consequential("delete")
    async def empty(self) -> str:
        """Empty the outbox."""
        self.sent.clear()
        return "empty"

    @tool
    async def look(self) -> str:
        """Show the outbox."""
        return ",".join(self.sent) or "nothing"

    async def verify(self, trajectory: Trajectory) -> Verdict:
        return Verdict(float(len(self.sent)), bool(self.sent))

    def snapshot(self) -> bytes:
        return "\n".join(self.sent).encode()

    def restore(self, state: bytes) -> None:
        self.sent = state.decode().split("\n") if state else []


class Once(Outbox):
    """An outbox whose episode ends with the first call."""

    async def step(self, action: Action) -> Step:
        return replace(await super().step(action), done=True)


def started(rules: dict[str, Any], kind: type[Environment] = Outbox) -> Environment:
    environment = guarded(kind(), rules).fresh()
    asyncio.run(environment.reset(environment.tasks("train")[0], 0))
    return environment


def call(environment: Environment, *calls: tuple[str, dict[str, str]]) -> Step:
    action = Action("", calls=tuple(ToolCall(name, arguments) for name, arguments in calls))
    return asyncio.run(environment.step(action))


def said(step: Step) -> str:
    return step.observation.content


MAIL = ("send_mail", {"text": "a"})


def test_without_rules_or_tools_it_is_the_environment_itself() -> None:
    environment = Outbox()
    assert guarded(environment, {}) is equipped(environment, []) is environment


def test_refused_and_dry_runs_change_nothing() -> None:
    refused, dry = started({"send": "refuse"}), started({"send_mail": "dry_run"})
    assert said(call(refused, MAIL)) == "Error: send_mail is not permitted here"
    assert not call(refused, MAIL).results[0].ok
    assert said(call(dry, MAIL)) == 'Dry run, nothing was done: send_mail {"text": "a"}'
    assert call(dry, MAIL).results[0].ok
    for environment in (refused, dry):
        assert said(call(environment, ("look", {}))) == "nothing"


def test_a_number_counts_what_succeeded_in_this_episode() -> None:
    environment = started({"send": 2})
    assert said(call(environment, ("send_mail", {"text": ""}))) == "Error: the mail is empty"
    step = call(environment, MAIL, ("look", {}), MAIL, MAIL)
    assert said(step).split("\n") == [
        *("sent", "a", "sent"),
        "Error: send_mail may be used 2 times only",
    ]
    assert [result.ok for result in step.results] == [True, True, True, False]
    fresh = environment.fresh()
    asyncio.run(fresh.reset(fresh.tasks("train")[0], 0))
    assert said(call(fresh, MAIL)) == "sent"


def test_a_confirmation_is_the_same_call_again() -> None:
    environment = started({"delete": "confirm", "send": "confirm"})
    assert said(call(environment, MAIL)).startswith("Not done yet. To confirm, make the same call")
    assert said(call(environment, ("empty", {}))).startswith("Not done yet")
    assert said(call(environment, MAIL)).startswith("Not done yet")
    assert said(call(environment, MAIL)) == "sent"
    assert said(call(environment, MAIL)).startswith("Not done yet")


def test_a_turn_of_several_calls_is_confirmed_by_the_next_turn() -> None:
    environment = started({"delete": "confirm", "send": "confirm"})
    calls = [MAIL, ("look", {}), MAIL, ("empty", {})]
    assert said(call(environment, *calls)).count("Not done yet") == 3, "not by itself"
    assert "Not done yet" not in said(call(environment, *calls))


def test_nothing_is_called_after_the_end() -> None:
    step = call(started({"send": 2}, Once), MAIL, MAIL)
    assert (said(step), step.done) == ("sent", True)


def test_a_name_comes_before_a_consequence_and_others_are_free() -> None:
    environment = started({"send": "refuse", "send_mail": "allow", "delete": "refuse"})
    assert said(call(environment, MAIL)) == "sent"
    assert "not permitted" in said(call(environment, ("empty", {})))


def test_what_was_called_is_part_of_a_snapshot() -> None:
    environment = started({"send": 1, "delete": "confirm"})
    start = environment.snapshot()
    call(environment, MAIL, ("empty", {}))
    later = environment.snapshot()
    environment.restore(start)
    assert environment.snapshot() == start
    assert said(call(environment, MAIL)) == "sent"
    environment.restore(later)
    assert "1 times only" in said(call(environment, MAIL, ("empty", {})))
    assert environment.restorable


def test_a_verdict_counts_calls_and_no_share_that_harmless_ones_would_lower() -> None:
    environment = started({"send": 2, "delete": "refuse"})
    for _ in range(3):
        call(environment, MAIL, ("empty", {}), *[("look", {})] * 5)
    played = Trajectory(environment.tasks("train")[0], "g", 0, 0)
    parts = asyncio.run(environment.verify(played)).parts
    assert (parts["consequential"], parts["held_back"]) == (0.2, 0.4)  # 1 + 3 were held back
    for _ in range(20):
        call(environment, ("empty", {}))
    assert asyncio.run(environment.verify(played)).parts["held_back"] == 1.0


def test_rules_that_fit_nothing() -> None:
    with pytest.raises(ConfigError, match="did you mean 'send_mail'"):
        guarded(Outbox(), {"send_mial": "refuse"})
    with pytest.raises(ConfigError, match=r"environment\.consequential\.send is -1"):
        guarded(Outbox(), {"send": -1})


@pytest.mark.wing("environments")
def test_a_recipe_says_the_rules(tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text('name = "r"\n[environment]\nname = "sql"\nconsequential = { sql = 1 }\n')
    loaded = load_recipe(str(recipe)).environment
    assert loaded.consequential == {"sql": 1}
    made = make_environment(loaded.name, {"tasks": {"count": 2}}, loaded.consequential)
    assert "SqlEnvironment" in [kind.__name__ for kind in type(made).__mro__]
    assert (made.spec.name, made.spec.reference_scores) == ("sql", {"noop": 0.0})
    for wrong in ("maybe", "true"):
        with pytest.raises(ConfigError, match="consequential"):
            load_recipe(str(recipe), [f"environment.consequential.sql={wrong}"])


MINE = '''
from turnwise import ToolError, tool
from turnwise.tools.tool import consequential

@tool
def convert(miles: float) -> str:
    """Convert miles to kilometres."""
    if miles < 0:
        raise ToolError("a distance is 0 or more")
    return f"{1.609344 * miles:.1f}"

@tool
@consequential("send")
async def send(text: str) -> str:
    """Send a text."""
    return "sent"

@tool
def lookup(country: str) -> str:
    """Look a country up."""
    return ""

def plain(text: str) -> str:
    """No tool."""
    return text
'''


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    return file


def called(environment: Capitals, name: str, **arguments: object) -> str:
    step = asyncio.run(environment.fresh().step(Action("", calls=(ToolCall(name, arguments),))))
    return step.observation.content


def test_they_stand_beside_the_environments_own(mine: Path) -> None:
    environment = equipped(Capitals(), [f"{mine}:convert", f"{mine}:send"])
    assert [tool.name for tool in environment.tools()] == ["convert", "lookup", "send"]
    assert called(environment, "convert", miles=10) == "16.1"
    assert called(environment, "convert", miles=-1) == "Error: a distance is 0 or more"
    assert called(environment, "send", text="x") == "sent"
    assert called(environment, "lookup", country="France") == "The capital is Paris."
    assert environment.spec == Capitals().spec


def test_rules_hold_for_them_too(mine: Path) -> None:
    name = f"{Path(__file__).parents[1] / 'fakes.py'}:Capitals"
    made = make_environment(name, {}, {"send": "refuse"}, tools=[f"{mine}:send"])
    assert called(made, "send", text="x") == "Error: send is not permitted here"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{mine}:lookup", "is called 'lookup', as another tool of capitals: give the function"),
        ("{mine}:plain", "not a tool: mark the function with @tool"),
        ("{mine}:gone", "unknown name 'gone'"),
        pytest.param(
            "calculte",
            "unknown tool 'calculte': did you mean 'calculate'",
            marks=pytest.mark.wing("environments"),
        ),
    ],
)
def test_mistakes_are_a_line(mine: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        equipped(Capitals(), [name.format(mine=mine)])


@pytest.mark.wing("environments")
def test_ablations_have_them(mine: Path) -> None:
    made = make_environment("mathematics", {"tasks": {"count": 4}}, tools=[f"{mine}:convert"])
    for variant in made.ablations().values():
        assert "convert" in [tool.name for tool in variant.tools()]


class Silent(Environment):
    """No tools."""

    def tasks(self, split: Split) -> list[Task]:
        return [Task(split, split)]


def results(environment: Environment, seed: int, calls: int, each: int = 1) -> list[Step]:
    """What an episode with `calls` turns shows, with so many calls in each."""
    look = ToolCall("lookup", {"country": "Italy"})

    async def work() -> list[Step]:
        own = environment.fresh()
        await own.reset(own.tasks("train")[0].public(), seed)
        return [await own.step(Action("", calls=(look,) * each)) for _ in range(calls)]

    return asyncio.run(work())


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was waited for, without the waiting."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr("turnwise.environments.derived.asyncio.sleep", sleep)
    return found


def made(mean: float, spread: float = 0.0) -> Environment:
    return slow(Capitals(), LatencyConfig(mean=mean, spread=spread))


def test_every_call_waits(waits: list[float]) -> None:
    steps = results(made(0.5), seed=0, calls=3, each=2)
    assert waits == [1.0] * 3  # of two calls each
    assert [step.results[0].content for step in steps] == ["The capital is Rome."] * 3


@pytest.mark.long
def test_calls_spread_around_the_mean(waits: list[float]) -> None:
    """A log-normal distribution has its median at mean * exp(-spread²/2), here 0.46."""
    results(made(1.0, 1.25), seed=0, calls=4_000)
    assert fmean(waits) == pytest.approx(1.0, rel=0.1)
    hundredths = quantiles(waits, n=100)
    assert hundredths[49] == pytest.approx(0.458, rel=0.05)
    assert hundredths[98] == pytest.approx(8.4, rel=0.2)


def test_the_seed_alone_decides_how_long(waits: list[float]) -> None:
    results(made(1.0, 1.0), seed=1, calls=5)
    results(made(1.0, 1.0), seed=1, calls=5)
    results(made(1.0, 1.0), seed=2, calls=5)
    assert waits[:5] == waits[5:10] != waits[10:]


@pytest.mark.wing("environments")
def test_a_recipe_and_its_ablations_are_slow(waits: list[float]) -> None:
    from turnwise_environments.measurement import played

    recipe = load_recipe(
        "multi_tool", ["environment.latency.mean=2", "environment.options.count=8"]
    )
    for environment in (environment_of(recipe), environment_of(recipe).ablations()["no_search"]):
        waits.clear()
        task = next(one for one in environment.tasks("heldout") if one.info["needs"] != "none")
        play = asyncio.run(played(environment, task, environment.oracle(task)))
        assert sum(waits) == 2 * play.trajectory.tool_calls > 0


def test_tools_are_needed() -> None:
    with pytest.raises(ConfigError, match="latency: silent has no tools"):
        slow(Silent(), LatencyConfig(mean=1.0))

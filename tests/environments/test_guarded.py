"""Rules for consequential tools: what is held back, what is counted, and that it is saved."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from turnwise.config import load_recipe
from turnwise.environments.base import Environment, Split
from turnwise.environments.derived import guarded
from turnwise.environments.registry import make_environment
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


def started(rules: dict[str, Any]) -> Environment:
    environment = guarded(Outbox(), rules).fresh()
    asyncio.run(environment.reset(environment.tasks("train")[0], 0))
    return environment


def call(environment: Environment, *calls: tuple[str, dict[str, str]]) -> Step:
    action = Action("", calls=tuple(ToolCall(name, arguments) for name, arguments in calls))
    return asyncio.run(environment.step(action))


def said(step: Step) -> str:
    return step.observation.content


MAIL = ("send_mail", {"text": "a"})


def test_no_rules_is_the_environment_itself() -> None:
    environment = Outbox()
    assert guarded(environment, {}) is environment


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

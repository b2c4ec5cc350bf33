"""The command that serves an environment: what it takes for one, and what it refuses."""

from pathlib import Path

import pytest

from turnwise.commands import cli
from turnwise.errors import ConfigError
from turnwise_environments.serve import offer_of
from turnwise_environments.serving.offer import LIMITS, is_loopback

RECIPE = """
name = "mine"
[environment]
name = "mathematics"
options = { tasks = { count = 30 } }
[rollout]
max_turns = 3
max_seconds = 7
[reward]
failure = -0.5
"""


def test_a_recipe_brings_its_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE)
    offer = offer_of(str(path), ["rollout.max_tool_calls=2"], 4, 30.0)
    assert (offer.limits.max_turns, offer.limits.max_tool_calls) == (3, 2)
    assert (offer.sessions, offer.patience) == (4, 30.0)
    assert offer.count("heldout") == 30
    assert "the recipe's [reward] is left out" in capsys.readouterr().err


def test_an_environment_takes_options() -> None:
    bare = offer_of("shop", ["count=20"], 1, 30.0)
    assert bare.limits is LIMITS
    assert bare.count("train") == 20


def test_a_shipped_recipe_comes_before_the_environment_of_its_name() -> None:
    offer = offer_of("mathematics", ["environment.options.tasks.count=20"], 1, 30.0)
    assert offer.count("train") == 20
    assert offer.limits is not LIMITS


def test_what_cannot_be_served() -> None:
    with pytest.raises(ConfigError, match="unknown environment 'shoop': did you mean 'shop'"):
        offer_of("shoop", [], 1, 30.0)


@pytest.mark.parametrize("how", [[], ["--mcp", "--openenv"]])
def test_one_protocol(how: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["serve-environment", "shop", *how])
    assert ended.value.code == 2
    assert "say how to serve it: --mcp or --openenv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("example.org", False),
    ],
)
def test_addresses_of_this_machine(host: str, ours: bool) -> None:
    assert is_loopback(host) is ours

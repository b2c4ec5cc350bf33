"""All built-in parts: each keeps the promise of its declaration, whatever the episode was."""

import asyncio
import random
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rewards.episodes import answer, call, episode, malformed, reporting, sampled
from turnwise.config import RewardConfig
from turnwise.errors import ConfigError
from turnwise.rewards.composition import make_reward
from turnwise.rewards.parts import REWARD_PARTS, RewardPart, Scope
from turnwise.types import Group, Trajectory, Turn

PAGE = Path(__file__).parents[2] / "docs/how-to/reward.md"
SECRET = {
    "answers": ["Rome"],
    "calls": '{"name": "a", "parameters": {"x": 1}}',
    "premises": ["p"],
    "conclusion": "p",
}

REPORTED = {"progress": RewardPart(-1, 1, scope=Scope.TURNS)}
"""What `shaping` reads."""


def any_episode(stream: random.Random) -> Trajectory:
    """An episode of a few turns of all kinds, that ends in any way."""
    turns: list[Turn] = [
        stream.choice(
            [
                call("search", "[1] Rome is here.", query=stream.choice("ab")),
                call("tool_call", calls=stream.choice([SECRET["calls"], "x"])),
                call("python", ok=False, thought=""),
                malformed(),
            ]
        )
        for _ in range(stream.randrange(5))
    ]
    if stream.random() < 0.7:
        turns.append(answer(stream.choice(["Rome", "Rome or Paris", "", "1. p premise", "3"])))
    logprobs = [-stream.random() for _ in range(stream.randrange(4))]
    changes = [1.0, *[0.0] * len(turns)][: len(turns)]
    made = reporting(episode(*turns, secret=SECRET), progress=changes)
    return replace(made, tokens=sampled(*logprobs))


@pytest.mark.parametrize("name", REWARD_PARTS.names())
def test_its_numbers_are_in_its_range(name: str) -> None:
    """`measured` refuses any that is not, and another count of them."""
    stream = random.Random(name)
    config = RewardConfig.model_validate({"parts": {name: {}}, "dominance": False})
    made = make_reward(config, REPORTED, 8)
    members = tuple(any_episode(stream) for _ in range(40))
    if REWARD_PARTS.get(name).scope == Scope.GROUP:
        found = asyncio.run(made.judge_groups([Group("g", members)], made.weights(0), 30.0))[0]
        assert len(found.graded) == 40
        return
    for member in members:
        asyncio.run(made.judge(member, made.weights(0)))


LONG = 100_000
HOSTILE = [
    "$" * LONG,
    " " * LONG + "x",
    "1" + " " * LONG + "x",
    "\n" * LONG + "x",
    "1. p copy 1 " * (LONG // 10),
    "a." * LONG + "!",
    "\\text{" * (LONG // 5),
    "{" * LONG,
    "[" * LONG,
    "[1]" * (LONG // 3),
    "<think>" * (LONG // 7),
]


@pytest.mark.long
@pytest.mark.parametrize("name", REWARD_PARTS.names())
def test_long_texts_take_no_longer_than_they_are(name: str) -> None:
    """What went over a text once for each of its characters would take minutes."""
    function = REWARD_PARTS.get(name).function
    for text in HOSTILE:
        said = (call("search", text, query=text), answer(text, text))
        for accepted in ("Rome", "x+1"):
            told = episode(*said, secret={**SECRET, "answers": [accepted]})
            member = reporting(told, progress=[0.5, 0.5])
            function(
                Group("g", (member,)) if REWARD_PARTS.get(name).scope == Scope.GROUP else member
            )


@pytest.mark.parametrize("name", REWARD_PARTS.names())
def test_it_is_described_in_one_line(name: str) -> None:
    part = REWARD_PARTS.get(name)
    assert part.description.endswith(".")
    assert all(option.annotation is not option.empty for option in part.options.values())
    assert all(option.default is not option.empty for option in part.options.values())


@pytest.mark.wing("environments")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("length", {"budget": 0}),
        ("length", {"of": "letters"}),
        ("repetition", {"n": 0}),
        ("search_r1", {"structure": 0.7}),
        ("tool_star", {"bonus": -0.1}),
        ("toolrl_calls", {"granularity": "finest"}),
    ],
)
def test_options_out_of_range_are_refused(name: str, options: dict[str, Any]) -> None:
    config = RewardConfig.model_validate({"parts": {name: {"options": options}}})
    with pytest.raises(ConfigError, match="option"):
        make_reward(config, {}, 8)


@pytest.mark.wing("environments")
def test_the_recipes_of_the_page_are_rewards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Success dominates in them, with the code of the page as one's own."""
    text = PAGE.read_text()
    (own,) = re.findall(r"```python\n(from turnwise.rewards.parts.*?)```", text, re.S)
    (tmp_path / "mine.py").write_text(own)
    monkeypatch.chdir(tmp_path)
    recipes = [tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", text, re.S)]
    assert len(recipes) == 4
    learned = {"reward_model": RewardPart(0, 1, "chance of success")}
    for recipe in recipes:
        made = make_reward(RewardConfig.model_validate(recipe["reward"]), REPORTED, 8, learned)
        assert made.terms
    group = Group("g", tuple(any_episode(random.Random(n)) for n in range(3)))
    first = REWARD_PARTS.get("mine.py:first").function
    assert first(group) == [0.0, 0.0, 0.0]  # none succeeded

"""The parts of examples/own_parts.py do what their page says, from a recipe and by name."""

from pathlib import Path

import pytest

import turnwise
from tests.fakes import Letters
from tests.small_runs import write_recipe

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/own_parts.py"
TABLES = """
rollout = { max_turns = 2, max_turn_tokens = 8, max_tokens = 150 }
train = { tasks_per_step = 2, group_size = 2 }
"""


def test_a_recipe_names_them(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, Letters.__name__, TABLES)
    components = turnwise.build(
        recipe,
        {"scaffold.name": f"{EXAMPLE}:Brief", "scaffold.options": {"opening": "Go on. "}},
        {"engine": f"{EXAMPLE}:Counting"},
        {"algorithm.estimator": f"{EXAMPLE}:median", "algorithm.scale": 3.0},
        {"reward.parts.brevity.use": f"{EXAMPLE}:brevity", "reward.parts.brevity.weight": 0.5},
        {"environment.tools": [f"{EXAMPLE}:celsius"]},
    )
    assert "celsius" in [tool.name for tool in components.environment.tools()]
    learner = turnwise.make_learner(components)
    before = type(components.engine).turns
    groups = turnwise.sample_groups(components)
    assert type(components.engine).turns > before
    first = groups[0].trajectories[0].tokens.ids.tolist()
    assert "Go on." in components.tokenizer.decode(first)
    credits = turnwise.estimate(components, learner, groups)
    for group in groups:
        low, high = sorted(member.reward for member in group.trajectories)
        for member in group.trajectories:
            assert member.verdict.parts["brevity"] == 1 - len(member.written.split()) / 100
            assert member.reward == member.verdict.success + 0.5 * member.verdict.parts["brevity"]
            advantage = 3.0 * (member.reward - (low + high) / 2)
            trained = credits.advantages[member.id][member.tokens.mask]
            assert trained == pytest.approx(advantage)
    turnwise.close(components)


def test_the_page_shows_this_code() -> None:
    page = (ROOT / "docs/start/own_algorithm.md").read_text()
    code = EXAMPLE.read_text().partition('"""\n\n')[2]
    for name in ("@part", "@tool", "class Brief", "class Counting"):
        block = name + code.partition(name)[2].partition("\n\n\n")[0].rstrip()
        assert block in page, f"docs/start/own_algorithm.md lacks {name}"

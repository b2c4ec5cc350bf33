"""The command `preflight`: a recipe's own model, and recipes that cannot be played."""

from pathlib import Path

import pytest

from tests.commands.shell import Shell

SMALL = (
    "train.tasks_per_step=2",
    "train.group_size=2",
    "rollout.max_turn_tokens=8",
    *("--seconds", "200", "--groups", "6"),
)
TOY = """
from turnwise import Environment, Verdict

class Empty(Environment):
    def tasks(self, split):
        return []

    def verify(self, trajectory):
        return Verdict(1.0, True)
"""


@pytest.mark.long
def test_a_recipe_of_which_each_turn_is_cut_short_is_not_to_be_trained(
    shell: Shell, tmp_path: Path
):
    page = tmp_path / "page.md"
    found = shell("preflight", "demo", *SMALL, "--json", "--page", page, code=1).json
    assert found["verdict"].endswith("seconds.")
    figures = {one["check"]: one for one in found["findings"]}
    assert figures["pass@2"]["figure"] == 0
    assert "measured" in figures["seconds of a step"]["note"]
    assert found["title"] == "Preflight of demo"
    assert "groups with mixed rewards" in page.read_text()


def test_an_environment_without_tasks_is_an_error(shell: Shell, tmp_path: Path):
    file = tmp_path / "empty.py"
    file.write_text(TOY)
    ended = shell(
        "preflight", "demo", f"environment.name={file}:Empty", "environment.options={}", code=2
    )
    assert "has no train tasks" in ended.err


def test_an_endpoint_is_refused(shell: Shell):
    ended = shell(
        "preflight", "demo", "engine=openai", "engine.model=m", "engine.url=http://here", code=2
    )
    assert "nothing can be trained with it" in ended.err

"""A wing of one's own: a section of recipes, a player of episodes, and a command.

pip install ./examples/wing
turnwise train examples/thermostat.toml hint.text="Stay calm." --run runs/hinted
turnwise hints runs/hinted
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import turnwise
from turnwise.config.wing_section import WingSection
from turnwise.conflicts import Claim, Need
from turnwise.rollout.episode import Episode
from turnwise.rollout.runner import Player
from turnwise.wings import Wing


class HintConfig(WingSection):
    """The section `[hint]`: words that the policy is told with each task."""

    text: str
    """The words."""

    def claims(self):
        """Say what the section needs of the rest of a recipe, and what it takes from it."""
        yield Claim("hint", (Need.OWN_PROCESS, Need.TOKENS), remedy="leave hint out")


@dataclass(frozen=True)
class Hinting(Player):
    """Plays episodes as turnwise does, of tasks that end with the hint."""

    text: str

    def episode(self, **parts: Any) -> Episode:
        """Make an episode."""
        planned = parts["planned"]
        task = replace(planned.task, prompt=f"{planned.task.prompt} {self.text}")
        return Episode(**{**parts, "planned": replace(planned, task=task)})


def with_hint(section: HintConfig, components: turnwise.Components) -> turnwise.Components:
    """Give the run a player of its episodes."""
    return replace(components, player=Hinting(section.text))


def hints(run: Path) -> None:
    """Say how many episodes of a run's last step were told the hint."""
    found = turnwise.open_run(run)
    episodes = found.trajectories(found.recorded[-1])["prompt"].to_pylist()
    told = sum(prompt.endswith(found.recipe().hint.text) for prompt in episodes)
    print(f"{told} of {len(episodes)} episodes were told the hint")


WING = Wing(
    commands={"hints": "turnwise_hints:hints"},
    settings={"hint": "turnwise_hints:HintConfig"},
    sections={"hint": "turnwise_hints:with_hint"},
)

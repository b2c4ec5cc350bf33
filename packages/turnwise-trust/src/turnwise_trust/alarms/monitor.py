"""The monitor of a run under way, which says what is wrong as soon as it is seen.

Each alarm is said once, and stands in the run's folder as an audit, with its evidence.
"""

import json
from collections.abc import Callable, Iterator, Mapping

import pyarrow.parquet as pq

from turnwise.config import Recipe
from turnwise.errors import unknown_name
from turnwise.parts.components import Components
from turnwise.storage.audits import Finding, write_audit
from turnwise.storage.run_folder import RunFolder
from turnwise_trust.alarms.heldout import Judged, falls, judged, refused
from turnwise_trust.alarms.settings import AlarmsConfig

NAME = "alarms"
"""The audit's name in the run's folder."""
COLUMNS = ["group", "reward", "success", "parts"]


class Alarms:
    """Looks at each step of RL. A run that is resumed begins with the steps that it has."""

    def __init__(self, folder: RunFolder, steps: int, say: Callable[[str], None], of: str) -> None:
        self._folder, self._say, self._heldout = folder, say, of
        self._judged = [self._read(step) for step in range(1, steps + 1)]
        self._said: dict[str, Finding] = {}

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Look at a step of RL that is recorded."""
        if "reward/mean" not in metrics:
            return  # the numbers of an evaluation
        self._judged.append(self._read(step))
        new = [one for one in self._found() if one.check not in self._said]
        for one in new:
            self._said[one.check] = one
            self._say(f"alarm at step {step}: {one.check}: {one.note}. {one.remedy}")
        if new:
            write_audit(self._folder, NAME, "Alarms while it trained", self._said.values())

    def close(self) -> None:
        """Nothing is open."""

    def _found(self) -> Iterator[Finding]:
        yield from falls(self._judged, self._heldout)
        if self._heldout:
            yield from refused(self._judged, self._heldout)

    def _read(self, step: int) -> Judged:
        file = self._folder.trajectory_file(str(step))
        rows = pq.read_table(file, columns=COLUMNS).to_pylist()
        parts = [{**row, "parts": json.loads(row["parts"])} for row in rows]
        return judged(step, parts, self._heldout)


def alarms_of(recipe: Recipe) -> Callable[[RunFolder, int, Callable[[str], None]], Alarms]:
    """The function that opens a recipe's alarms."""
    section = recipe.find(AlarmsConfig)
    assert section is not None  # it is there by default
    return lambda folder, steps, say: Alarms(folder, steps, say, section.heldout_reward)


def checked(section: AlarmsConfig, components: Components) -> Components:
    """Raise ConfigError for a held-out verifier that no episode is measured by."""
    reward, name = components.recipe.reward, section.heldout_reward
    known = {*components.environment.spec.parts, *(reward.parts if reward else ())}
    if name and name not in known:
        raise unknown_name("alarms.heldout_reward", name, known)
    return components

"""The monitor of a run under way, which says what is wrong as soon as it is seen.

After each step the held-out verifier is asked (`heldout.py`); every few steps the rules of the
doctor that see a policy game its reward or become narrow, each of which has to find the same twice
in a row. An alarm is said once, and stands in the run's folder as an audit, with its evidence.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from turnwise.config import Recipe
from turnwise.errors import unknown_name
from turnwise.parts.components import Components
from turnwise.storage.audits import Finding, audits, read_audit, write_audit
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_columns, rows_of_tasks
from turnwise_trust.copying import COLUMNS, COPIED, copied_share
from turnwise_trust.heldout import WINDOW, Judged, falls, judged, refused
from turnwise_trust.settings import AlarmsConfig

if TYPE_CHECKING:
    from turnwise_trust.doctor.gathering import Gatherer

NAME = "alarms"
"""The audit's name in the run's folder."""


class Alarms:
    """Looks at each step of RL. A run that is resumed begins with the steps that it has."""

    def __init__(self, folder: RunFolder, steps: int, say: Callable[[str], None], of: str) -> None:
        self._folder, self._say, self._heldout = folder, say, of
        self._judged: list[Judged] = []
        self._gatherer: Gatherer | None = None
        self._new: list[dict[str, float]] = []
        self._last: Sequence[Mapping[str, Any]] = ()
        self._suspected: Set[str] = frozenset()
        before = read_audit(folder.path, NAME)["findings"] if NAME in audits(folder.path) else []
        self._said: dict[str, Finding] = {one.check: one for one in before}
        known = {file.stem for file in folder.trajectory_files()}
        for step, metrics in enumerate(folder.lines("metrics.jsonl")[:steps], 1):
            # Who needs room may have deleted the others.
            if "reward/mean" in metrics and f"step-{step:06d}" in known:
                self._take(metrics, step)
                # What the last look suspected, the next one is compared with.
                if step % WINDOW == 0 and step > steps - WINDOW:
                    list(self._suspects())

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Look at a step of RL that is recorded."""
        if "reward/mean" not in metrics:
            return  # the numbers of an evaluation, or no episode had a grade
        self._take(metrics, step)
        new = [one for one in self._found(step) if one.check not in self._said]
        for one in new:
            self._said[one.check] = one
            said = f"{one.note.rstrip('.')}. {one.remedy.rstrip('.')}. See it: {one.replay}"
            self._say(f"alarm at step {step}: {one.check}: {said}")
        if new:
            write_audit(self._folder, NAME, "Alarms while it trained", self._said.values())

    def close(self) -> None:
        """Nothing is open."""

    def _found(self, step: int) -> Iterator[Finding]:
        yield from falls(self._judged, self._heldout)
        if self._heldout:
            yield from refused(self._judged, self._heldout)
        if step % WINDOW == 0:
            for one in self._suspects():
                yield replace(one, replay=f"turnwise show RUN --step {step}")

    def _suspects(self) -> Iterator[Finding]:
        """The finds of the doctor's rules that were there a window before, too, with an episode of
        the last step that shows it."""
        # Loaded when it is asked, and not by each run.
        from turnwise_trust.doctor.gathering import Gatherer
        from turnwise_trust.doctor.readers.turnwise_run import measured, rollout_of
        from turnwise_trust.doctor.rules import behaviour, gaming

        if self._gatherer is None:
            self._gatherer = Gatherer()
        for one in self._new:
            self._gatherer.add(measured(one))
        self._new.clear()
        for row in self._last:
            self._gatherer.add(rollout_of(self._judged[-1].step, row))
        log = self._gatherer.log("turnwise run", "turnwise")
        rules = (*gaming.RULES, *behaviour.RULES)
        asked = (rule for rule in rules if rule.answerable(log))
        found = {one.finding.check: one.finding for rule in asked for one in rule.look(log)}
        yield from (one for check, one in found.items() if check in self._suspected)
        self._suspected = found.keys()

    def _take(self, metrics: Mapping[str, float], step: int) -> None:
        """Keep a step's numbers, and what its trajectories say."""
        columns = ["reward", "success", "parts", "outcome", "tool_calls", *COLUMNS]
        rows = rows_of_tasks(read_columns(self._folder.trajectory_file(str(step)), columns))
        parts = [{**row, "parts": json.loads(row["parts"])} for row in rows]
        self._judged.append(judged(step, parts, self._heldout))
        self._last = rows
        share = copied_share(rows)
        copied = {} if share is None else {COPIED: share}
        self._new.append({**metrics, **copied, "step": step})


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

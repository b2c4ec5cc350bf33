"""Writes a log as a run's folder, which `turnwise view` opens: curves, texts and the diagnosis.

It holds what the log tells, without tokens, and no run can go on from it.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import tomli_w

from turnwise.storage.audits import write_audit
from turnwise.storage.run_folder import RunFolder
from turnwise.types import Action, Group, Outcome, Task, Trajectory, Turn, Verdict
from turnwise_trust.doctor.log import Event, Log, Rollout
from turnwise_trust.page import Page

OF_A_STEP = 256
"""Texts of a step that are kept, at most."""
CHARACTERS = 200_000_000
"""Characters of texts that are kept, at most."""


@dataclass
class Texts:
    """The first rollouts of each step, while a log is read."""

    steps: dict[int, list[Rollout]] = field(default_factory=lambda: defaultdict(list))
    characters: int = 0

    def see(self, event: Event) -> None:
        """Keep a rollout, as far as there is room."""
        if not isinstance(event, Rollout) or self.characters >= CHARACTERS:
            return
        kept = self.steps[event.step or 0]
        if len(kept) < OF_A_STEP:
            kept.append(event)
            self.characters += len(event.text) + len(event.group or "")


def write_folder(path: Path, log: Log, texts: Texts, page: Page) -> None:
    """Write the folder, which is new or empty. Raises DataError for another one."""
    folder = RunFolder.for_evaluation(path)
    (path / "trajectories").mkdir(exist_ok=True)
    for step, metrics in sorted(_metrics(log).items()):
        folder.append("metrics.jsonl", {"step": step, **metrics})
    for step, rollouts in texts.steps.items():
        folder.write_trajectories(f"step-{step:06d}", _groups(rollouts))
    write_audit(folder, "doctor", page.title, page.findings)
    folder.write_text("report.json", "{}\n")
    # Last: a folder that has this file holds a run.
    written_by = {"name": path.name, "environment": {"name": log.framework or log.source}}
    folder.write_text("config.toml", tomli_w.dumps(written_by))


def _metrics(log: Log) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = defaultdict(dict)
    for name, series in log.series.items():
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            found[step][name] = value
    return found


def _groups(rollouts: list[Rollout]) -> list[Group]:
    """The groups that the log compares; a rollout of no group is one by itself."""
    named = [(one.group or f"rollout {place}", one) for place, one in enumerate(rollouts)]
    return [
        Group(name, tuple(_trajectory(one, name, place) for place, (_, one) in enumerate(members)))
        for name, members in groupby(sorted(named, key=itemgetter(0)), key=itemgetter(0))
    ]


def _trajectory(rollout: Rollout, group: str, place: int) -> Trajectory:
    """An episode of one turn; not graded where the log has no reward, and a success at any reward
    above 0 where the log does not say."""
    verdict = None
    outcome = Outcome.TRUNCATED_TOKENS if rollout.truncated else Outcome.FAILURE
    if rollout.reward is None:
        outcome = Outcome.GRADER_ERROR
    else:
        success = rollout.reward > 0 if rollout.success is None else rollout.success
        verdict = Verdict(rollout.reward, success, rollout.parts)
        outcome = Outcome.SUCCESS if success else outcome
    turns = (Turn(Action(rollout.text)),)
    return Trajectory(
        Task(group, group), group, place, 0, turns=turns, outcome=outcome, verdict=verdict
    )

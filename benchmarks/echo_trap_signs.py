"""Signs of the Echo Trap in finished runs: how often each leads a collapse, and its false alarms.

    .venv/bin/python benchmarks/echo_trap_signs.py runs/ragen runs/verifiability runs/gigpo

Reads the finished runs in folders of studies. A run has collapsed where success, averaged over five
steps, fell to half of its highest and is there at the end, and the reward fell with it; where the
reward rose meanwhile it was hacked, which is another fault, and the run is left out. A run is sound
where success never fell so far and ends with three quarters of its highest at least; others are
left out too. A sign leads where it is there before the step of the collapse, and is a false alarm
in a sound run. It counts only while success, averaged over five steps, is neither rising nor above
the level of a solved task, as in the warning. The threshold of a sign is the one that leads most
often with at most 5% of false alarms in the runs of even seeds; the figures are also those of odd
seeds, which chose nothing. In hindsight is the threshold chosen on all runs, the most that a sign
can do here. A second table has each study by itself, with the thresholds in `SIGNS`, which were
chosen before (docs/log/echo_trap.md): to a later run they are a test. Writes echo_trap_signs.json
and .md.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from tables import table

from turnwise.monitor.echo_trap import REWARD, Thresholds, averages, detect
from turnwise_studies.results.collapse import collapse_step

WINDOW, SOLVED, GAIN = Thresholds().window, Thresholds().solved, Thresholds().gain
FALSE_ALARMS = 0.05
"""Share of the sound runs in which a sign may be there, when its threshold is chosen."""
KEPT = 0.75
"""Share of its highest success that a sound run ends with, at least."""
SUCCESS = "rollout/success"

History = Sequence[Mapping[str, float]]


@dataclass(frozen=True)
class Run:
    """A finished run. Example: read_run(Path("runs/ragen/starpo-0"))."""

    name: str
    seed: int
    history: History

    @property
    def collapse(self) -> int | None:
        """The step of the collapse; None also where success came back, and where the reward did not
        fall with it."""
        step = collapse_step(self.history)
        whole = averages([line[SUCCESS] for line in self.history], WINDOW)
        if step is None or whole[-1] > 0.5 * max(whole):
            return None
        success, reward = (
            averages([line[series] for line in self.history[:step]], WINDOW)
            for series in (SUCCESS, REWARD)
        )
        return step if reward[-1] < reward[success.index(max(success))] else None

    @property
    def is_sound(self) -> bool:
        """Whether it kept its success."""
        success = averages([line[SUCCESS] for line in self.history], WINDOW)
        fallen = collapse_step(self.history) is not None
        return not fallen and 0 < max(success) * KEPT <= success[-1]


@dataclass(frozen=True)
class Sign:
    """A number that tells of the trap where it is high enough: `level` of the steps so far, None
    where it cannot be known; the levels that `thresholds` has are tried."""

    name: str
    level: Callable[[History], float | None]
    thresholds: Sequence[float]
    threshold: float
    """The one that earlier runs chose."""

    def first(self, history: History, threshold: float) -> int | None:
        """The first step at which it is there."""
        for step in range(WINDOW + 1, len(history) + 1):
            level = self.level(history[:step])
            if level is not None and level >= threshold and not _succeeds(history[:step]):
                return step
        return None


@dataclass(frozen=True)
class Score:
    """The figures of a sign with a threshold over some runs."""

    sign: str
    threshold: float
    collapsed: int
    leads: list[int]
    """Steps from the sign to the collapse, of the collapses that it led."""
    sound: int
    false_alarms: int

    @property
    def share_led(self) -> float:
        """Share of the collapses that the sign was before."""
        return len(self.leads) / self.collapsed if self.collapsed else 0.0

    @property
    def is_quiet(self) -> bool:
        """Whether false alarms are few enough."""
        return self.false_alarms <= FALSE_ALARMS * self.sound


def fall(series: str) -> Callable[[History], float | None]:
    """How far the average of a series has fallen, as a share of its highest one."""

    def level(history: History) -> float | None:
        means = averages([line[series] for line in history if series in line], WINDOW)
        return 1 - means[-1] / max(means) if means and max(means) > 0 else None

    return level


def rise(series: str) -> Callable[[History], float | None]:
    """How far the average of a series is above its lowest one."""

    def level(history: History) -> float | None:
        means = averages([line[series] for line in history if series in line], WINDOW)
        return means[-1] - min(means) if means else None

    return level


def last(series: str) -> Callable[[History], float | None]:
    """The last number of a series."""
    return lambda history: history[-1].get(series)


def spike(series: str) -> Callable[[History], float | None]:
    """The last number of a series as a multiple of the median of those before."""

    def level(history: History) -> float | None:
        *before, last = [line.get(series) for line in history]
        known = [number for number in before if number is not None]
        return last / median(known) if known and last is not None and median(known) > 0 else None

    return level


def warning(history: History) -> float:
    """1 where the program's own warning is due."""
    return float(detect(history, 1.0, Thresholds()) is not None)


SHARES = [step / 20 for step in range(1, 20)]
MULTIPLES = [1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 15, 20, 30]
SIGNS = (
    Sign("spread of rewards falls", fall("reward/group_std"), SHARES, 0.5),
    Sign("groups all alike rise", rise("groups/all_equal"), SHARES, 0.3),
    Sign("entropy falls", fall("policy/entropy"), SHARES, 0.45),
    Sign("entropy spikes", spike("policy/entropy"), MULTIPLES, 2),
    Sign("gradient norm spikes", spike("policy/gradient_norm"), MULTIPLES, 2.5),
    Sign("repetition within episodes rises", rise("repetition/actions"), SHARES, 0.1),
    Sign("repetition in groups rises", rise("repetition/episodes"), SHARES, 0.3),
    Sign("divergence from the sampler", last("policy/approx_kl"), SHARES, 0.25),
    Sign("calls of an episode rise", rise("rollout/tool_calls"), SHARES, 0.5),
    Sign("success itself falls", fall(SUCCESS), SHARES[:9], 0.4),
    Sign("the warning", warning, [1.0], 1.0),
)


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("studies", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("runs/echo_trap_signs"))
    arguments = parser.parse_args()
    studies = {folder.name: read_runs(folder) for folder in arguments.studies}
    runs = [run for one in studies.values() for run in one]
    found = scores(runs)
    arguments.out.mkdir(parents=True, exist_ok=True)
    plain = [{part: asdict(score) for part, score in one.items()} for one in found]
    (arguments.out / "echo_trap_signs.json").write_text(json.dumps(plain, indent=1) + "\n")
    text = f"{markdown(found)}\n\n{by_study(studies)}"
    (arguments.out / "echo_trap_signs.md").write_text(text + "\n")
    print(f"{len(runs)} runs, {_kinds(runs)}\n\n{text}")


def read_runs(study: Path) -> list[Run]:
    """The finished runs of a study that have RL steps enough to look at."""
    found = []
    for report in sorted(study.glob("*/report.json")):
        metrics = report.parent / "metrics.jsonl"
        lines = metrics.read_text().splitlines() if metrics.is_file() else []
        if len(lines) > WINDOW:
            history = [json.loads(line) for line in lines]
            seed = int(report.parent.name.rpartition("-")[2])
            found.append(Run(f"{study.name}/{report.parent.name}", seed, history))
    return found


def scores(runs: Sequence[Run]) -> list[dict[str, Score]]:
    """For each sign its figures with the threshold chosen on even seeds: over these (`chosen`),
    over odd seeds (`tested`), and with the one chosen on all (`hindsight`)."""
    even = [run for run in runs if run.seed % 2 == 0]
    odd = [run for run in runs if run.seed % 2]
    found = []
    for sign in SIGNS:
        best = chosen(sign, even)
        tested = score(sign, best.threshold, odd)
        found.append({"chosen": best, "tested": tested, "hindsight": chosen(sign, runs)})
    return found


def chosen(sign: Sign, runs: Sequence[Run]) -> Score:
    """The threshold that leads most often among those with few false alarms, the lowest of equals;
    the highest one where none has so few."""
    tried = [score(sign, threshold, runs) for threshold in sign.thresholds]
    quiet = [one for one in tried if one.is_quiet]
    return max(quiet, key=lambda one: one.share_led) if quiet else tried[-1]


def score(sign: Sign, threshold: float, runs: Sequence[Run]) -> Score:
    """The figures of a sign over runs."""
    collapsed = [run for run in runs if run.collapse is not None]
    sound = [run for run in runs if run.is_sound]
    leads = []
    for run in collapsed:
        first = sign.first(run.history, threshold)
        if first is not None and run.collapse is not None and first < run.collapse:
            leads.append(run.collapse - first)
    alarms = sum(sign.first(run.history, threshold) is not None for run in sound)
    return Score(sign.name, threshold, len(collapsed), leads, len(sound), alarms)


def markdown(found: Sequence[Mapping[str, Score]]) -> str:
    """A table with a row for each sign, the sets of runs side by side."""
    rows: list[dict[str, Any]] = []
    for one in found:
        row: dict[str, Any] = {
            "sign": one["chosen"].sign,
            "threshold": f"{one['chosen'].threshold:g}",
        }
        for part, numbers in one.items():
            row[f"led, {part}"] = f"{len(numbers.leads)} of {numbers.collapsed}"
            row[f"median lead, {part}"] = f"{median(numbers.leads):g}" if numbers.leads else "–"
            row[f"false alarms, {part}"] = f"{numbers.false_alarms} of {numbers.sound}"
        rows.append(row)
    return table(rows)


def by_study(studies: Mapping[str, Sequence[Run]]) -> str:
    """A table with a row for each sign: its figures in each study by the earlier threshold."""
    rows: list[dict[str, Any]] = []
    for sign in SIGNS:
        row: dict[str, Any] = {"sign": sign.name, "threshold": f"{sign.threshold:g}"}
        for name, runs in studies.items():
            found = score(sign, sign.threshold, runs)
            row[f"led, {name}"] = f"{len(found.leads)} of {found.collapsed}"
            row[f"leads, {name}"] = ", ".join(map(str, found.leads)) or "–"
            row[f"false alarms, {name}"] = f"{found.false_alarms} of {found.sound}"
        rows.append(row)
    return table(rows)


def _succeeds(history: History) -> bool:
    """Whether success is rising, or the task solved."""
    success = averages([line[SUCCESS] for line in history], WINDOW)
    before = success[max(0, len(success) - 1 - WINDOW)]
    return success[-1] > before + GAIN or success[-1] >= SOLVED


def _kinds(runs: Sequence[Run]) -> str:
    collapsed = sum(run.collapse is not None for run in runs)
    sound = sum(run.is_sound for run in runs)
    steps = fmean(len(run.history) for run in runs) if runs else 0
    return (
        f"{collapsed} collapsed, {sound} sound, {len(runs) - collapsed - sound} left out; "
        f"{steps:.0f} steps on average"
    )


if __name__ == "__main__":
    main()

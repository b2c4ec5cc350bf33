"""An evaluation in a folder of its own, which is read as a run's: `turnwise evaluate --out`.

Not here: how it is played (`start.py`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.evaluation.paired import Comparison
from turnwise.evaluation.report import build_report, report_json, report_markdown
from turnwise.monitor.no_signal import summary as signal_of
from turnwise.storage.run_folder import RunFolder
from turnwise.training.components import Components
from turnwise.training.evaluations import Evaluated, keep_evaluation


def write_evaluations(
    folder: RunFolder,
    parts: Components,
    weights: Path | None,
    evaluations: Mapping[str, Evaluated],
    step: int,
    comparisons: Sequence[Comparison] = (),
) -> None:
    """Write the recipe, evaluations by their names, and a report of them.

    `weights` is the checkpoint that was evaluated, None for the model that the recipe names; `step`
    is the step of RL whose reward the episodes have.
    """
    with folder.locked():
        folder.begin(parts.recipe)
        folder.write_tokenizer(parts.tokenizer)
        for name, one in evaluations.items():
            keep_evaluation(folder, name, one, parts.environment, step)
        first = next(iter(evaluations.values()))
        report = build_report(
            parts.recipe,
            parts.environment,
            [group.trajectories[0].task for group in first.groups],
            {name: one.summary for name, one in evaluations.items()},
            comparisons,
            signal_of([]),
            sum(one.summary["seconds"] for one in evaluations.values()),
        )
        folder.write_text("report.json", report_json(report))
        folder.write_text("report.md", report_markdown(report))

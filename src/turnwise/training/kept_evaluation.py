"""An evaluation in a folder of its own, which is read as a run's: `turnwise evaluate --out`.

Not here: how it is played (`start.py`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.evaluation.paired import Comparison
from turnwise.storage.run_folder import RunFolder
from turnwise.training.components import Components
from turnwise.training.evaluations import Evaluated, keep_evaluation
from turnwise.training.reporting import weights_text, write_report


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
        write_report(
            folder,
            parts,
            [group.trajectories[0].task for group in first.groups],
            {name: one.summary for name, one in evaluations.items()},
            comparisons,
            sum(one.summary["seconds"] for one in evaluations.values()),
            weights_text(weights),
        )

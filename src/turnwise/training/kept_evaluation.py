"""An evaluation in a folder of its own, which is read as a run's: `turnwise evaluate --out`.

Not here: how it is played (`start.py`, `endpoint_evaluation.py`).
"""

from collections.abc import Mapping, Sequence

from transformers import PreTrainedTokenizerBase

from turnwise.config import Recipe
from turnwise.environments.base import Environment
from turnwise.evaluation.paired import Comparison
from turnwise.storage.run_folder import RunFolder
from turnwise.training.evaluations import Evaluated, keep_evaluation
from turnwise.training.reporting import write_report


def write_evaluations(
    folder: RunFolder,
    recipe: Recipe,
    environment: Environment,
    evaluations: Mapping[str, Evaluated],
    policy: str,
    tokenizer: PreTrainedTokenizerBase | None = None,
    step: int = 0,
    comparisons: Sequence[Comparison] = (),
) -> None:
    """Write the recipe, evaluations by their names, and a report of them.

    `policy` says whose figures they are, `tokenizer` decodes their tokens, if there are any, and
    `step` is the step of RL whose reward the episodes have.
    """
    with folder.locked():
        folder.begin(recipe)
        if tokenizer is not None:
            folder.write_tokenizer(tokenizer)
        for name, one in evaluations.items():
            keep_evaluation(folder, name, one, environment, step)
        first = next(iter(evaluations.values()))
        write_report(
            folder,
            recipe,
            environment,
            [group.trajectories[0].task for group in first.groups],
            {name: one.summary for name, one in evaluations.items()},
            comparisons,
            sum(one.summary["seconds"] for one in evaluations.values()),
            policy,
        )

"""The commands `rescore` and `transfer`.

Not here: how that is done (`rescoring.py`, `transfer.py`), and what is printed (`tables.py`).
"""

from pathlib import Path
from typing import Annotated

import typer

from turnwise.commands.evaluating import AsJson, Overrides
from turnwise.commands.printing import print_json, print_line, print_table, terminal_display
from turnwise.errors import ConfigError


def rescore(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/demo.")],
    overrides: Overrides = None,
    verifier: Annotated[
        str | None,
        typer.Option(
            help="A function of a trajectory, path/to/file.py:name, that returns a Verdict, or "
            "whether it succeeded; the environment's own verifier if not given."
        ),
    ] = None,
    evaluation: Annotated[
        str | None,
        typer.Option(help="The evaluation to judge again; the trained policy's if not given."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Judge a run's saved evaluation again, without playing, and list where verdicts differ."""
    from turnwise.storage.run_folder import RunFolder
    from turnwise_studies.evaluations.rescoring import rescore_run

    folder = RunFolder.open(run)
    chosen = folder.main_evaluation(evaluation)
    summary = rescore_run(folder, overrides or [], chosen, verifier)
    if as_json:
        print_json(summary)
    else:
        from turnwise.commands.results import summary_table
        from turnwise_studies.evaluations.tables import disagreement_table

        name = f"rescored-{chosen}"
        print_table(summary_table(name, summary | {"breakdown": {}}))
        if summary["disagreements"]:
            print_table(disagreement_table(summary))
        else:
            print_line("no verdict differs from the one before")
        print_line(
            f"{run}/evaluations/{name}.json; its episodes: turnwise show {run} --step "
            f"evaluation-{name}"
        )


def transfer(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Run folders; changes to the environments' recipes, as in evaluation.tasks=200."
        ),
    ],
    environments: Annotated[
        str, typer.Option(help="Recipes or runs whose environments to play in, with commas.")
    ],
    as_json: AsJson = False,
) -> None:
    """Evaluate runs in each other's environments: a matrix of success."""
    from turnwise_studies.evaluations.transfer import transfer as evaluate_all

    folders = [Path(word) for word in runs if "=" not in word]
    overrides = [word for word in runs if "=" in word]
    places = [name.strip() for name in environments.split(",")]
    if not folders:
        raise ConfigError("give a run or more, as in: transfer runs/a runs/b --environments demo")
    found = evaluate_all(folders, places, overrides, terminal_display())
    if as_json:
        print_json(found)
    else:
        from turnwise_studies.evaluations.tables import transfer_table

        print_table(transfer_table(found))

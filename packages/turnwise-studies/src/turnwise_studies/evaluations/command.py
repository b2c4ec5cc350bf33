"""The commands `rescore` and `transfer`, and `evaluate` under worse conditions."""

from pathlib import Path
from typing import Annotated

import typer

from turnwise.commands.evaluating import AsJson, Overrides
from turnwise.commands.printing import print_json, print_line, print_table, terminal_display
from turnwise.config import load_recipe
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


def robustness(
    run: str,
    overrides: list[str],
    inject: str | None,
    instructions: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Evaluate under worse conditions, and print."""
    from turnwise_studies.evaluations.failing import FailureRates

    rates = None if inject is None else FailureRates.parse(inject)
    from turnwise.evaluation.policies import run_of
    from turnwise.parts.first_checks import configure
    from turnwise.storage.run_folder import RunFolder

    kept = None if out is None else RunFolder.for_evaluation(out)
    folder = run_of(Path(run))
    recipe = load_recipe(run if folder is None else str(folder / "config.toml"), overrides)
    configure(recipe)
    from turnwise_studies.evaluations.robustness import evaluate_robustness

    policy = None if folder is None else Path(run)
    found = evaluate_robustness(recipe, policy, terminal_display(), rates, instructions, kept)
    if as_json:
        print_json(found)
    else:
        from turnwise_studies.evaluations.tables import robustness_tables

        for table in robustness_tables(run, found):
            print_table(table)

"""The command that writes what a run has for use elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.commands.printing import print_line
from turnwise.errors import ConfigError, InfrastructureError, first_line

if TYPE_CHECKING:
    from turnwise.storage.run_folder import RunFolder


def export(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/demo.")],
    to: Annotated[
        Path | None, typer.Option(help="Write the policy into this folder, for transformers.")
    ] = None,
    adapters: Annotated[
        str, typer.Option(help="With --to: LoRA adapters merged into the weights, or apart.")
    ] = "merged",
    successes: Annotated[
        Path | None,
        typer.Option(
            help="Write successful episodes as chat messages and as texts (.jsonl), for "
            "sft.demonstrations.file and cpt.file."
        ),
    ] = None,
    preferences: Annotated[
        Path | None,
        typer.Option(help="Write each group's best and worst episode as messages (.jsonl)."),
    ] = None,
    guided: Annotated[
        Path | None,
        typer.Option(
            help="Write successes after a hint, without it, beside the first attempt (.jsonl), for "
            "sft.demonstrations.file and preferences.file."
        ),
    ] = None,
    helpful_calls: Annotated[
        Path | None,
        typer.Option(
            help="Write calls whose results help to the right answer (Toolformer; .jsonl)."
        ),
    ] = None,
    inspect: Annotated[
        Path | None, typer.Option(help="Write an evaluation as a log of Inspect's (.eval, .json).")
    ] = None,
    atif: Annotated[
        Path | None,
        typer.Option(
            help="Write episodes with their tokens into this folder, each as a file in ATIF."
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            help="With --atif: a step's number, or a name such as demonstrations, in place of all "
            "steps of RL."
        ),
    ] = None,
    evaluation: Annotated[
        str | None,
        typer.Option(
            help="The evaluation to write: with --inspect the trained policy's if not given, with "
            "--atif in place of all steps of RL."
        ),
    ] = None,
) -> None:
    """Export from a run for use elsewhere: the policy, conversations, preference pairs, logs,
    trajectories."""
    from turnwise.storage.run_folder import RunFolder

    if adapters not in ("merged", "apart"):
        raise ConfigError(f"--adapters is merged or apart, not {adapters!r}")
    if not any((to, successes, preferences, guided, helpful_calls, inspect, atif)):
        raise ConfigError(
            "say what to export: --to, --successes, --preferences, --guided, --helpful-calls, "
            "--inspect or --atif"
        )
    folder = RunFolder.open(run)
    written = []
    with _disk():
        if to is not None:
            written.append(_policy(folder, to, adapters == "merged"))
        written += _rows(folder, successes, preferences, guided, helpful_calls)
        if inspect is not None:
            written.append(_evaluation(folder, inspect, evaluation))
        if atif is not None:
            written.append(_episodes(folder, atif, step, evaluation))
    print_line("\n".join(written))


@contextmanager
def _disk() -> Iterator[None]:
    """Say in a line that the disk is full, or may not be written."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        raise InfrastructureError(f"the export failed: {first_line(error)}") from error


def _policy(folder: "RunFolder", to: Path, merged: bool) -> str:
    from turnwise_studies.formats.export import export_policy

    export_policy(folder, to, merged)
    return f"the policy in {to}"


def _rows(
    folder: "RunFolder",
    successes: Path | None,
    preferences: Path | None,
    guided: Path | None,
    helpful_calls: Path | None,
) -> Iterator[str]:
    """Write the files of rows that are asked for, and say what is in each."""
    from turnwise_studies.formats import export as formats

    for file, export_rows in (
        (successes, formats.export_successes),
        (preferences, formats.export_preferences),
        (guided, formats.export_guided),
        (helpful_calls, formats.export_helpful_calls),
    ):
        if file is not None:
            count, left_out = export_rows(folder, file)
            yield f"{count} lines in {file} ({left_out} episodes or pairs left out)"


def _evaluation(folder: "RunFolder", file: Path, evaluation: str | None) -> str:
    from turnwise_studies.formats.inspect_export import export_inspect

    count = export_inspect(folder, file, folder.main_evaluation(evaluation))
    return f"{count} samples in {file}; to be seen with inspect view"


def _episodes(folder: "RunFolder", target: Path, step: str | None, evaluation: str | None) -> str:
    from turnwise_studies.formats.atif_export import export_atif

    names = ([step] if step else []) + ([f"evaluation-{evaluation}"] if evaluation else [])
    count, left_out = export_atif(folder, target, names)
    return f"{count} episodes in {target} ({left_out} left out)"

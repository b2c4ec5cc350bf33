"""The command `launch`: a recipe as a job of Slurm, Kubernetes or SkyPilot.

Not here: the text of a job (`cluster/jobs.py`).
"""

import re
import shutil
import subprocess
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from turnwise.cluster.hiring import gpus_of
from turnwise.cluster.jobs import Job, kubernetes, skypilot, slurm
from turnwise.commands.evaluating import Overrides
from turnwise.commands.printing import print_line
from turnwise.config import load_recipe
from turnwise.errors import ConfigError


class Scheduler(StrEnum):
    """The program that starts jobs on a cluster."""

    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    SKYPILOT = "skypilot"


KINDS = {
    Scheduler.SLURM: (slurm, "sbatch", ["sbatch"]),
    Scheduler.KUBERNETES: (kubernetes, "rayjob.yaml", ["kubectl", "apply", "-f"]),
    Scheduler.SKYPILOT: (skypilot, "sky.yaml", ["sky", "jobs", "launch", "--yes"]),
}
"""The text of a job, the ending of its file, and the program that submits it."""


def launch(
    recipe: Annotated[
        str, typer.Argument(help="A recipe: a .toml file, or a name from `turnwise list`.")
    ],
    on: Annotated[Scheduler, typer.Option(help="The scheduler.")],
    overrides: Overrides = None,
    run: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the run, on a disk that all nodes see; runs/<recipe's name> if not "
            "given, and below --mount where there is a volume."
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes.")] = 1,
    cpus: Annotated[int, typer.Option(min=1, help="Cores of each node.")] = 8,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of each node.")] = 0,
    gpu: Annotated[str, typer.Option(help="Their kind, as the scheduler names it.")] = "",
    hours: Annotated[float, typer.Option(min=0.1, help="Hours, at most.")] = 24.0,
    setup: Annotated[
        str, typer.Option(help="A line of shell before it, as in: source .venv/bin/activate")
    ] = "",
    image: Annotated[
        str,
        typer.Option(help="A container with turnwise and its extra `cluster` in it."),
    ] = "",
    volume: Annotated[
        str, typer.Option(help="A claim (Kubernetes) or a bucket (SkyPilot) that keeps the run.")
    ] = "",
    mount: Annotated[str, typer.Option(help="Where the volume is mounted.")] = "/runs",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the job and submit nothing.")
    ] = False,
) -> None:
    """Write a job that trains a recipe on a cluster, and submit it. Interrupted jobs go on."""
    loaded = load_recipe(recipe, overrides or [])
    cluster = loaded.cluster
    if nodes > 1 and not (cluster.workers or cluster.samplers or cluster.learners > 1):
        raise ConfigError(
            "more than one node is of use with several processes alone: add cluster.workers=N, "
            "cluster.samplers=N or cluster.learners=N"
        )
    used = gpus_of(loaded)
    if nodes * gpus > used:
        typer.echo(
            f"warning: {nodes * gpus} GPUs are booked, and the recipe uses {used}: lower --gpus, "
            "or raise cluster.learners or cluster.samplers",
            err=True,
        )
    folder = run or (Path(mount) if volume else Path("runs")) / loaded.name
    name = re.sub("[^a-z0-9]+", "-", loaded.name.lower()).strip("-") or "turnwise"
    needs = (nodes, cpus, gpus, gpu, hours, setup, image, volume, mount)
    job = Job(name, recipe, str(folder), tuple(overrides or ()), *needs)
    text_of, ending, submit = KINDS[on]
    text = text_of(job)
    if dry_run:
        print(text, end="")
        return
    if shutil.which(submit[0]) is None:
        raise ConfigError(f"{submit[0]} is not installed here: --dry-run prints the job")
    file = Path(f"{name}.{ending}")
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
    print_line(f"submitted with: {' '.join([*submit, str(file)])}")
    raise typer.Exit(subprocess.run([*submit, str(file)], check=False).returncode)

"""The command that makes the embedded model."""

from pathlib import Path
from typing import Annotated

import typer

from turnwise.commands.printing import terminal_display


def build_tiny(
    target: Annotated[Path, typer.Argument(help="An empty folder for the checkpoint.")],
    seed: Annotated[int, typer.Option(help="Seed of the build.")] = 0,
    stages: Annotated[
        str, typer.Option(help="Any of read, cards, tags, words; each goes on from the one before.")
    ] = "read,cards,tags,words",
    width: Annotated[int, typer.Option(help="Of the layers, a multiple of 32.")] = 192,
    layers: Annotated[int, typer.Option(help="256 and 6 make 5 million parameters.")] = 4,
) -> None:
    """Make the embedded model `tiny` from scratch: tokenizer, pretraining tasks, checkpoint (over
    an hour; a larger model takes longer)."""
    from turnwise.threads import configure_threads

    configure_threads(2)
    from turnwise.environments.search.corpus import standard_library
    from turnwise_studies.tiny.architecture import Shape
    from turnwise_studies.tiny.build import build

    shape = Shape(width, layers)
    build(target, standard_library(), seed, terminal_display(), stages.split(","), shape=shape)

"""The command `doctor`."""

from pathlib import Path
from typing import Annotated

import typer

from turnwise.commands.evaluating import AsJson
from turnwise.commands.printing import terminal_display
from turnwise.errors import ConfigError


def doctor(
    words: Annotated[
        list[str],
        typer.Argument(
            help="A run's folder, or logs of it, of turnwise or of another framework; for JSON "
            "lines of your own a mapping too: reward=score step=global_step."
        ),
    ],
    page: Annotated[Path | None, typer.Option(help="Write the page, as Markdown.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Write the log as a folder that `turnwise view` opens.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say why a run does not learn, from its log: likeliest cause first, evidence and remedy."""
    from turnwise_trust.doctor.diagnosis import diagnosed
    from turnwise_trust.doctor.folder import Texts, write_folder
    from turnwise_trust.doctor.readers.plain import mapping_of
    from turnwise_trust.doctor.reading import read

    paths = [Path(word) for word in words if "=" not in word or Path(word).exists()]
    if not paths:
        raise ConfigError("name a run's folder or a log: turnwise doctor RUN|LOG")
    mapping = mapping_of([word for word in words if Path(word) not in paths])
    display = terminal_display()
    texts = Texts()
    log = read(paths, mapping, display.say, (lambda event: None) if folder is None else texts.see)
    found = diagnosed(log)
    found.tell(page, as_json)
    if folder is not None:
        write_folder(folder, log, texts, found)
    if found.failed:
        raise typer.Exit(1)

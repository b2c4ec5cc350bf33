"""The command `synthesise`."""

from pathlib import Path
from typing import Annotated

import typer

from turnwise.commands.evaluating import Overrides
from turnwise.commands.printing import print_line, terminal_display
from turnwise.errors import ConfigError


def synthesise(
    recipe: Annotated[str, typer.Argument(help="A recipe with the section [synthesis].")],
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder; one that was begun goes on.")
    ] = None,
) -> None:
    """Synthesise items by a method: checked, each once, and none that is held out."""
    from turnwise.api import load_recipe
    from turnwise.storage.run_lock import locked
    from turnwise_synthesis.folder import Folder
    from turnwise_synthesis.heldout import HeldOut
    from turnwise_synthesis.items import Material
    from turnwise_synthesis.loop import reasons
    from turnwise_synthesis.loop import synthesise as fill
    from turnwise_synthesis.making import fixed_settings, make_method
    from turnwise_synthesis.settings import SynthesisConfig

    loaded = load_recipe(recipe, *(overrides or []))
    settings = loaded.find(SynthesisConfig)
    if settings is None:
        raise ConfigError(f"recipe {recipe} has no section [synthesis]: give it a synthesis.method")
    material, place = Material(loaded, settings), out or Path("synthesised") / loaded.name
    with material.resources, locked(place):
        method = make_method(material)
        folder = Folder(place, fixed_settings(material))
        # In games training tasks have the same prompt, which is then nothing that is held out.
        trained = {task.prompt for task in material.environment.tasks("train")}
        kept = [one for one in material.environment.tasks("heldout") if one.prompt not in trained]
        heldout = HeldOut(kept)
        fill(settings, method, heldout, folder, terminal_display())
    print_line(f"{len(folder.items)} items in {folder.path} ({reasons(folder)})")

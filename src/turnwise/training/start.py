"""How a run begins, for the command line and for programs alike.

Nothing heavy is imported before names are checked and threads are set.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from turnwise.config import Recipe
from turnwise.monitor.display import Display
from turnwise.stopping import stoppable
from turnwise.threads import configure_threads, set_variables

if TYPE_CHECKING:
    from turnwise.storage.run_folder import RunFolder
    from turnwise.training.context import RunContext


@contextmanager
def prepared(recipe: Recipe, folder: "RunFolder", display: Display) -> "Iterator[RunContext]":
    """Inside, the run is this process's alone and has its parts, for `training.run.run`; in the
    main thread, signals end it in good order (`stopping.py`)."""
    main = threading.current_thread() is threading.main_thread()
    with stoppable() if main else nullcontext(), folder.locked():
        # What is known to be wrong is refused before anything heavy is imported.
        set_variables()
        from turnwise.parts.first_checks import known_run

        known = known_run(recipe, folder.fresh)
        configure_threads(recipe.threads)
        from turnwise.parts.resources import resources_of
        from turnwise.storage.moves import keep_moves
        from turnwise.training.prepare import prepare

        with resources_of(recipe, folder.path) as found:
            context = prepare(recipe, folder, display, found, known)
            if not folder.fresh:
                keep_moves(folder, recipe, context.saved)
            yield context

"""Tasks of which only names are known here: all else is known to the program that plays them."""

import json
from pathlib import Path

from turnwise import Environment, Task
from turnwise.errors import DataError


class Listed(Environment):
    """`file` is JSON: lists of names by split, such as tau2-bench's `split_tasks.json`. `data` is
    for the program, which finds it beside the name."""

    def __init__(self, file, train="train", heldout="test", data=()):
        try:
            names = json.loads(Path(file).read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{file}: no JSON can be read there: {error}") from None
        self.splits = {}
        for split, name in {"train": train, "heldout": heldout}.items():
            found = names.get(name) if isinstance(names, dict) else None
            if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
                raise DataError(f"{file}: there is no list of names {name!r}, the {split} tasks")
            self.splits[split] = [Task(one, one, data=dict(data)) for one in found]

    def tasks(self, split):
        return self.splits[split]

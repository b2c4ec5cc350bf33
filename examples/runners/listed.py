"""Tasks of which only names are known here: all else is known to the program that plays them."""

import json
from pathlib import Path

from turnwise import Environment, Task


class Listed(Environment):
    """`file` is JSON: lists of names by split, such as tau2-bench's `split_tasks.json`. `data` is
    for the program, which finds it beside the name."""

    def __init__(self, file, train="train", heldout="test", data=()):
        self.names, self.data = json.loads(Path(file).read_text()), dict(data)
        self.splits = {"train": train, "heldout": heldout}

    def tasks(self, split):
        return [Task(name, name, data=self.data) for name in self.names[self.splits[split]]]

"""What the base checkpoint's second stage is fed with; the build itself takes 1.5 hours."""

import random
from collections import Counter

from turnwise.synthesis.drills import Drill
from turnwise.synthesis.tiny import BATCH_TOKENS, balanced, batches
from turnwise.types import Task


def test_hop_kinds_and_forms_of_questions_are_equally_frequent() -> None:
    forms = {"one": ("Where is {}?",) * 9 + ("What has {}?",), "two": ("Who knows {} of {}?",)}
    tasks = [
        Task(f"{kind} {number}", form.format(*names), info={"hops": kind, "symbols": names})
        for kind, wordings in forms.items()
        for number, form in enumerate(wordings)
        for names in [(f"is{number}", f"a.b{number}")[: form.count("{")]]
    ]
    chosen = Counter(task.prompt.split(" ")[0] for task in balanced(tasks, random.Random(0), 4000))
    assert chosen["Who"] == 2000
    assert abs(chosen["Where"] - 1000) < 80


def test_batches_hold_everything_once_and_little_padding() -> None:
    stream = random.Random(1)
    drills = [Drill([number] * stream.randint(50, 900), []) for number in range(400)]
    made = batches(drills)
    assert sorted(drill.ids[0] for batch in made for drill in batch) == list(range(400))
    padded = sum(len(batch) * max(len(drill.ids) for drill in batch) for batch in made)
    assert padded < 1.1 * sum(len(drill.ids) for drill in drills)
    assert all(len(batch) * max(len(d.ids) for d in batch) <= BATCH_TOKENS for batch in made)

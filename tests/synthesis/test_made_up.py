"""The made-up library is a real environment of which nothing is real."""

import asyncio

from turnwise.synthesis.made_up import made_up_environment
from turnwise.types import Trajectory, Turn

WORDS = [
    f"{first}{second}" for first in ("ba", "ko", "mi", "tu", "q") for second in ("lo", "7", "ra")
]


def test_its_oracle_is_right() -> None:
    environment = made_up_environment(WORDS, 3, modules=60)
    tasks = environment.tasks("train")
    assert len(tasks) > 20
    for task in tasks[:50]:
        trajectory = Trajectory(task, "g", 0, 0)
        for action in environment.oracle(task):
            trajectory.turns.append(Turn(action, asyncio.run(environment.step(action))))
        assert asyncio.run(environment.verify(trajectory)).success


def test_it_repeats_with_the_seed() -> None:
    hashes = [made_up_environment(WORDS, seed, modules=30).spec.data_hash for seed in (1, 1, 2)]
    assert hashes[0] == hashes[1] != hashes[2]

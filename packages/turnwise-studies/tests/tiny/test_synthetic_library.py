"""The synthetic library is a real environment of which nothing is real."""

import asyncio
from collections.abc import Sequence

import pytest

from turnwise.environments.search.corpus import Document, standard_library
from turnwise.environments.search.environment import SearchEnvironment
from turnwise.types import Trajectory, Turn
from turnwise_studies.tiny.synthetic_library import NO_BASE, synthetic_library_environment


@pytest.fixture(scope="module")
def real() -> list[Document]:
    return standard_library()


@pytest.mark.long
def test_its_oracle_is_right(real: list[Document]) -> None:
    environment = synthetic_library_environment(real, 3, modules=60)
    tasks = environment.tasks("train")
    assert len(tasks) > 20
    for task in tasks[:50]:
        script = environment.oracle(task)
        turns = tuple(Turn(action, asyncio.run(environment.step(action))) for action in script)
        trajectory = Trajectory(task, "g", 0, 0, turns=turns)
        assert asyncio.run(environment.verify(trajectory)).success


@pytest.mark.slow
def test_no_question_of_it_is_real_and_hardly_a_fact(real: list[Document]) -> None:
    environment = synthetic_library_environment(real, 4, modules=60)
    questions = {task.prompt for task in environment.tasks("train")}
    known = SearchEnvironment()
    assert not questions & {t.prompt for t in (*known.tasks("train"), *known.tasks("heldout"))}

    def facts(documents: Sequence[Document]) -> set[tuple[str, str, str]]:
        """Without those that say nothing: a package is the first part of a module's name."""
        told = {(entry.name, *fact) for entry in documents for fact in entry.facts}
        return {fact for fact in told if fact[1] != "package" and fact[2] != NO_BASE}

    made_up = facts(environment.documents)
    assert len(made_up) > 500
    assert len(made_up & facts(real)) < 0.01 * len(made_up)


@pytest.mark.long
def test_names_have_the_shapes_of_real_ones(real: list[Document]) -> None:
    def mean_length(documents: list[Document], kind: str) -> float:
        lengths = [len(entry.name) for entry in documents if entry.kind == kind]
        return sum(lengths) / len(lengths)

    made_up = list(synthetic_library_environment(real, 4, modules=60).documents)
    for kind in ("class", "function"):
        assert mean_length(made_up, kind) == pytest.approx(mean_length(real, kind), rel=0.25)


@pytest.mark.slow
def test_it_repeats_with_the_seed(real: list[Document]) -> None:
    hashes = [
        synthetic_library_environment(real, seed, modules=30).spec.data_hash for seed in (1, 1, 2)
    ]
    assert hashes[0] == hashes[1] != hashes[2]

"""The synthetic library has the shapes of the real one, and nothing real in it."""

from collections.abc import Sequence

import pytest

from turnwise.environments.search.corpus import Document, standard_library
from turnwise_studies.tiny.synthetic_library import NO_BASE, synthetic_documents


@pytest.fixture(scope="module")
def real() -> list[Document]:
    return standard_library()


@pytest.mark.long
def test_hardly_a_fact_of_it_is_real(real: list[Document]) -> None:
    def facts(documents: Sequence[Document]) -> set[tuple[str, str, str]]:
        """Without those that say nothing: a package is the first part of a module's name."""
        told = {(entry.name, *fact) for entry in documents for fact in entry.facts}
        return {fact for fact in told if fact[1] != "package" and fact[2] != NO_BASE}

    made_up = facts(synthetic_documents(real, 4, modules=60))
    assert len(made_up) > 500
    assert len(made_up & facts(real)) < 0.01 * len(made_up)


@pytest.mark.long
def test_names_have_the_shapes_of_real_ones(real: list[Document]) -> None:
    def mean_length(documents: list[Document], kind: str) -> float:
        lengths = [len(entry.name) for entry in documents if entry.kind == kind]
        return sum(lengths) / len(lengths)

    made_up = synthetic_documents(real, 4, modules=60)
    for kind in ("class", "function"):
        assert mean_length(made_up, kind) == pytest.approx(mean_length(real, kind), rel=0.25)


def test_it_repeats_with_the_seed(real: list[Document]) -> None:
    one, again, other = (synthetic_documents(real, seed, modules=30) for seed in (1, 1, 2))
    assert one == again != other

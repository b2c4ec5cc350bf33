"""Every causal-LM class of transformers ends as right or as a refusal in one line."""

import pytest

from benchmarks.architectures import Row, examine, examine_all, listed
from benchmarks.tiny_models import kinds

OWN = "right, own caches"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "engine", "shared"),
    [
        ("falcon", "right", "refused"),
        ("doge", "right", "refused"),  # makes its masks of its values
        ("glm_moe_dsa", OWN, "refused"),  # attends to the keys that an indexer selects
        ("deepseek_v3", "right", "right"),
        ("granite", "right", "right"),
        ("minicpm3", "right", "right"),
        ("stablelm", "right", "refused"),
        ("phi3", "right", "right"),  # past the switch of its rotary positions
        ("gpt_neo", OWN, "refused"),  # past its window
        ("gpt_neox_japanese", OWN, "refused"),  # cannot read views of the pool
        ("qwen3_5_text", OWN, "refused"),
        ("lfm2", OWN, "refused"),
        ("mamba", OWN, "refused"),
        ("llama4_text", OWN, "refused"),
    ],
)
def test_classes_that_are_right(kind: str, engine: str, shared: str) -> None:
    found = examine(kind)
    assert (found.engine, found.learner, found.shared) == (engine, "right", shared), found.why


@pytest.mark.long
@pytest.mark.parametrize(("kind", "learner"), [("cpmant", "refused"), ("bert", "refused")])
def test_classes_that_are_refused(kind: str, learner: str) -> None:
    found = examine(kind)
    assert found.sound
    assert found.learner == learner
    assert found.why


def test_a_row_that_is_wrong_is_not_sound() -> None:
    assert not Row("a", "A", "right", "wrong", "right").sound
    assert not Row("a", "A", "error", "right", "right").sound


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_class_of_transformers() -> None:
    rows = list(examine_all(kinds()))
    assert [row.kind for row in rows] == kinds()
    assert [row for row in rows if not row.sound] == []
    assert sum(row.engine.startswith("right") for row in rows) > len(rows) / 2


def test_kinds_are_listed_by_what_became_of_them() -> None:
    why = "{} is off by {} nats; off by more than can be computed"
    rows = [
        Row("a", "A", "right", "right", "right"),
        Row("b", "Bee", "refused", "right", "refused", why.format("Bee", 0.12)),
        Row("c", "Cee", "refused", "right", "refused", why.format("Cee", 7.8)),
        Row("d", "D", "right", "right", "right"),
    ]
    assert listed(rows).splitlines()[2:] == [
        "| `a`, `d` | right | right | right |  |",
        "| `b` (0.12), `c` (7.8) | refused | right | refused "
        "| it is off by … nats; off by more than can be computed |",
    ]

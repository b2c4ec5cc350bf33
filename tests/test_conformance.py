"""The vectors of `conformance/`: turnwise passes them, and each of them can fail."""

import copy
import json
from typing import Any

import pytest

from conformance import make
from conformance.run import ADAPTERS, FILE, Adapter, judge, main, pose

HELD = json.loads(FILE.read_text())
VECTORS = {vector["id"]: vector for vector in HELD["vectors"]}
OTHERS = [(name, other["name"]) for name, vector in VECTORS.items() for other in vector["others"]]
BY_CHOICE = {"gae-limit": "choice"}
"""An episode that a limit ended has ended: what came after it is not estimated."""
NOT_POSED = {"divergence-k1": "not posed"}


@pytest.fixture(scope="module")
def adapter() -> Adapter:
    return ADAPTERS["turnwise"]()


WAITS = "together-a-tool-that-hangs"


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] * (n == WAITS)) for n in VECTORS]
)
def test_turnwise_gives_what_is_expected(name: str, adapter: Adapter) -> None:
    result = pose(VECTORS[name], adapter)
    assert result.verdict == (BY_CHOICE | NOT_POSED).get(name, "pass"), result


def test_the_file_is_what_the_reference_makes() -> None:
    assert json.loads(json.dumps(make.make())) == HELD


@pytest.mark.parametrize(("name", "other"), OTHERS)
def test_a_planted_defect_is_found_and_named(name: str, other: str) -> None:
    vector = VECTORS[name]
    kind = next(one["kind"] for one in vector["others"] if one["name"] == other)
    result = judge(vector, make.REFERENCE[vector["operation"]](vector["inputs"], other))
    assert (result.verdict, result.note) == ("choice" if kind == "choice" else "differs", other)


@pytest.mark.parametrize("name", VECTORS)
def test_every_number_of_a_vector_counts(name: str) -> None:
    vector = VECTORS[name]
    for key in vector["expected"]:
        wrong = copy.deepcopy(vector["expected"])
        wrong[key] = moved(wrong[key])
        assert judge(vector, wrong).verdict != "pass"
    assert judge(vector, vector["expected"]).verdict == "pass"


def moved(value: Any) -> Any:
    """The last number, another one."""
    return [*value[:-1], moved(value[-1])] if isinstance(value, list) else value + 0.5


def test_a_wrong_mask_in_turnwise_would_be_found(adapter: Adapter) -> None:
    """The loss of an adapter that trains on tool output, and of one that averages by parts."""
    vector = VECTORS["micro-batches-token-mean"]

    def unmasked(inputs: Any) -> Any:
        return adapter["loss"](inputs | {"mask": [[1] * len(row) for row in inputs["mask"]]})

    def by_parts(inputs: Any) -> Any:
        halves = [
            adapter["loss"](
                {**inputs, "mask": [m if i in own else [0] * len(m) for i, m in masks]}
                | {"micro_batches": [[0, 1, 2, 3]]}
            )
            for masks in [list(enumerate(inputs["mask"]))]
            for own in inputs["micro_batches"]
        ]
        gradient = [
            [(a + b) / 2 for a, b in zip(*rows, strict=True)]
            for rows in zip(*(half["gradient"] for half in halves), strict=True)
        ]
        return {"loss": sum(half["loss"] for half in halves) / 2, "gradient": gradient}

    assert pose(vector, {"loss": unmasked}).verdict == "differs"
    result = pose(vector, {"loss": by_parts})
    assert (result.verdict, result.note) == ("differs", "mean of means")


def test_every_defect_has_a_vector() -> None:
    assert len(HELD["defects"]) == 18
    assert all(defect["vectors"] for defect in HELD["defects"].values())


def test_what_an_adapter_lacks_or_raises_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(inputs: Any) -> Any:
        raise ValueError("no such option")

    monkeypatch.setitem(ADAPTERS, "turnwise", lambda: {"version": "0", "grade": broken})
    assert main(["turnwise"]) == 1
    shown = capsys.readouterr().out
    assert "error: ValueError: no such option" in shown
    assert "not posed: it has no such part" in shown

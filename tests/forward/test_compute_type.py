"""The type of an update, by measurement on this machine."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.forward.models_for_tests import tiny_model
from turnwise.errors import ConfigError
from turnwise.forward import compute_type
from turnwise.forward.compute_type import FILE, choose_compute_type, speed_of_bfloat16

CPU = torch.device("cpu")


class Sized:
    """A model of which nothing is read but its sizes."""

    device, dtype = CPU, torch.float32

    def __init__(self, parameters: int = 10**9) -> None:
        self.config, self.parameters = self, parameters
        self.hidden_size, self.intermediate_size = 64, 128

    def get_text_config(self) -> "Sized":
        return self

    def num_parameters(self) -> int:
        return self.parameters


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path))
    return tmp_path


def kept(cache: Path, gain: float) -> None:
    """Let the machine have measured that gain for the sizes of Sized."""
    speed_of_bfloat16(Sized(), CPU)
    (key,) = json.loads((cache / FILE).read_text())
    (cache / FILE).write_text(json.dumps({key: gain}))


def test_what_was_measured_is_kept_for_the_machine(cache: Path) -> None:
    first, note = speed_of_bfloat16(Sized(), CPU)
    assert first > 0
    assert note == ""
    kept(cache, 7.5)
    assert speed_of_bfloat16(Sized(), CPU) == (7.5, "")


@pytest.mark.parametrize("changes_at", range(10))
def test_a_machine_whose_speed_changes_while_it_is_measured(
    cache: Path, monkeypatch: pytest.MonkeyPatch, changes_at: int
) -> None:
    """Four times as slow from one trial on: the type that is chosen does not depend on when."""
    trials: list[bool] = []

    def seconds(rows: int, weights: torch.Tensor, lower: bool) -> float:
        trials.append(lower)
        slow = 4.0 if len(trials) > 4 + changes_at else 1.0  # after those that find the rows
        return slow * (1.0 if lower else 1.1)

    monkeypatch.setattr(compute_type, "_seconds", seconds)
    assert speed_of_bfloat16(Sized(), CPU)[0] == pytest.approx(1.1)
    assert choose_compute_type(Sized(), "auto", CPU).name == "float32"


def test_other_instructions_are_another_machine(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(cache, 7.5)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    assert speed_of_bfloat16(Sized(), CPU)[0] != 7.5


@pytest.mark.long
@pytest.mark.parametrize("damage", ["", "[]", "{", '{"a": 1}'])
def test_a_damaged_file_is_measured_again(cache: Path, damage: str) -> None:
    (cache / FILE).write_text(damage)
    assert speed_of_bfloat16(Sized(), CPU)[0] > 0
    kept_now = json.loads((cache / FILE).read_text())
    assert all(isinstance(value, int | float) for value in kept_now.values())


def test_a_cache_folder_that_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "file"))
    gain, note = speed_of_bfloat16(Sized(), CPU)
    assert gain > 0
    assert "measured at each start" in note


@pytest.mark.parametrize(
    ("gain", "parameters", "name", "why"),
    [
        (0.01, 10**9, "float32", "bfloat16 is 100 times as slow here"),
        (1.1, 10**9, "float32", "bfloat16 is 1.1 times as fast here"),
        (9.0, 10**6, "float32", "fewer than 20M parameters"),
    ],
)
def test_bfloat16_is_taken_only_where_it_pays(
    cache: Path, gain: float, parameters: int, name: str, why: str
) -> None:
    kept(cache, gain)
    chosen = choose_compute_type(Sized(parameters), "auto", CPU)
    assert chosen.name == name
    assert why in chosen.why


def of_one_size() -> Any:
    """A model that counts as a large one, with the sizes of Sized."""
    model = tiny_model("qwen3")
    model.config.hidden_size, model.config.intermediate_size = 64, 128
    model.num_parameters = lambda: 10**9
    return model


def test_bfloat16_is_taken_where_it_is_faster_and_near(cache: Path) -> None:
    kept(cache, 3.0)
    chosen = choose_compute_type(of_one_size(), "auto", CPU)
    assert chosen.name == "bfloat16"
    assert "3.0 times as fast here, and within" in chosen.why
    model = of_one_size()
    with torch.no_grad():
        model.lm_head.weight *= 300  # a model so certain that rounding shows
    assert compute_type._distance(model) > compute_type.PARITY
    chosen = choose_compute_type(model, "auto", CPU)
    assert chosen.name == "float32"
    assert "but off by" in chosen.why


def test_a_card_without_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "An Old Card")
    card = torch.device("cuda")
    chosen = choose_compute_type(Sized(), "auto", card)
    assert (chosen.name, chosen.why) == ("float32", "An Old Card has no bfloat16")
    with pytest.raises(ConfigError, match="which An Old Card lacks: leave it out"):
        choose_compute_type(Sized(), "bfloat16", card)


@pytest.mark.parametrize(
    ("gain", "parameters", "name", "said"),
    [
        (0.01, 10**6, "bfloat16", "says; it is 100 times as slow here: float32 is faster"),
        (4.0, 10**9, "float32", "as the recipe says; bfloat16 is 4.0 times as fast here"),
        (1.1, 10**9, "float32", "as the recipe says"),
        (4.0, 10**6, "float32", "fewer than 20M parameters"),
    ],
)
def test_a_slow_type_that_is_forced_is_said(
    cache: Path, gain: float, parameters: int, name: str, said: str
) -> None:
    kept(cache, gain)
    chosen = choose_compute_type(Sized(parameters), name, CPU)
    assert chosen.name == name
    assert chosen.why.endswith(said)


def test_weights_in_bfloat16_are_computed_in_it(cache: Path) -> None:
    kept(cache, 0.01)
    model = Sized()
    model.dtype = torch.bfloat16
    assert choose_compute_type(model, "auto", CPU).name == "bfloat16"
    assert "100 times as slow" in choose_compute_type(model, "auto", CPU).why
    with pytest.raises(ConfigError, match=r"set model\.dtype=float32"):
        choose_compute_type(model, "float32", CPU)

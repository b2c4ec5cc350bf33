"""The example of the whole of RL on one page: it learns, and stays short."""

import importlib.util
from pathlib import Path
from statistics import fmean

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "rl_loop.py"
PAGE = 120


@pytest.mark.slow
def test_the_reward_rises(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("rl_loop", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    rewards = example.main(steps=10)
    assert len(rewards) == 10
    assert fmean(rewards[-3:]) > fmean(rewards[:3]) + 0.1
    printed = capsys.readouterr().out
    assert "MODEL        yes" in printed
    assert "USER         no " in printed
    assert "held out: success" in printed
    assert len(EXAMPLE.read_text().splitlines()) <= PAGE

"""What `workers.py` measures, without workers."""

import argparse

import pytest

pytest.importorskip("turnwise_cluster")

from workers import measure


def test_all_episodes_are_played_and_counted() -> None:
    options = argparse.Namespace(
        workers=[0], episodes=6, places=2, seconds=0.01, steps=2, kill_every=0.0
    )
    row = measure(0, options)
    assert row["episodes"] == 6
    assert 6 / row["episodes a second"] >= 2 * 2 * 0.01 * 0.5
    assert row["driver's processor, ms an episode"] > 0

"""Promise 11: seeds are names, not counters."""

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from turnwise.seeds import derive

parts = st.lists(st.one_of(st.integers(0, 9), st.sampled_from(["train", "a", "1", ""])), max_size=4)


@given(parts, parts)
def test_different_names_have_different_seeds(
    first: list[int | str], second: list[int | str]
) -> None:
    same = [(type(part), part) for part in first] == [(type(part), part) for part in second]
    assert (derive(*first) == derive(*second)) == same


def test_neighbouring_runs_and_episodes_share_no_seed() -> None:
    seeds = {derive(run, "train", "task", episode) for run in range(50) for episode in range(50)}
    assert len(seeds) == 2500
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_seed_is_the_same_in_another_process_with_another_hash_seed() -> None:
    code = "from turnwise.seeds import derive; print(derive(1, 'train', 'x', 2))"
    environment = {"PYTHONHASHSEED": "123"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert int(found.stdout) == derive(1, "train", "x", 2)

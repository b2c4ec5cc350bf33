"""Signs of the Echo Trap over finished runs: which are led, by how much, and false alarms."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("turnwise_studies")
from echo_trap_signs import Run, Sign, chosen, fall, markdown, read_runs, rise, score, scores, spike


def run(seed: int, success: list[float], **series: list[float]) -> Run:
    names = {"spread": "reward/group_std", "norm": "policy/gradient_norm"}
    history: list[dict[str, Any]] = []
    for step, one in enumerate(success):
        line = {"step": step + 1, "rollout/success": one, "reward/mean": one}
        history.append(line | {names[key]: values[step] for key, values in series.items()})
    return Run(f"run-{seed}", seed, history)


STEPS = 20
SPREAD = Sign("spread", fall("reward/group_std"), [0.3, 0.6])
TRAPPED = run(0, [0.4] * 12 + [0.0] * 8, spread=[0.5] * 8 + [0.1] * 12)
SOUND = run(2, [0.4] * STEPS, spread=[0.5] * 8 + [0.3] * 12)


def test_levels_by_hand() -> None:
    assert TRAPPED.collapse == 15
    assert (SOUND.collapse, SOUND.is_sound, TRAPPED.is_sound) == (None, True, False)
    assert abs((SPREAD.level(TRAPPED.history) or 0) - 0.8) < 1e-9
    rises = run(0, [0.4] * 10, spread=[0.1] * 5 + [0.5] * 5)
    assert abs((rise("reward/group_std")(rises.history) or 0) - 0.4) < 1e-9
    spikes = run(0, [0.4] * 10, norm=[1.0] * 9 + [3.0])
    assert spike("policy/gradient_norm")(spikes.history) == 3.0
    assert spike("policy/entropy")(spikes.history) is None


def test_a_run_whose_reward_rose_was_hacked_and_has_not_collapsed() -> None:
    line = TRAPPED.history
    hacked = Run("a", 0, [{**one, "reward/mean": float(one["step"])} for one in line])
    assert (hacked.collapse, hacked.is_sound) == (None, False)


def test_success_that_comes_back_has_not_collapsed() -> None:
    hard_tasks = run(0, [0.4] * 8 + [0.0] * 5 + [0.4] * 7)
    assert (hard_tasks.collapse, hard_tasks.is_sound) == (None, False)


def test_a_sign_leads_by_the_steps_to_the_collapse() -> None:
    """The spread's average is 0.3 below its highest after step 10 (0.5, 0.42, 0.34), and the run
    has collapsed at step 15."""
    found = score(SPREAD, 0.3, [TRAPPED, SOUND])
    assert (found.collapsed, found.leads, found.sound, found.false_alarms) == (1, [5], 1, 1)
    stricter = score(SPREAD, 0.6, [TRAPPED, SOUND])
    assert (stricter.leads, stricter.false_alarms) == ([3], 0)


def test_no_sign_counts_while_success_rises_or_where_the_task_is_solved() -> None:
    narrow = [0.5] * 5 + [0.05] * 15
    rising = run(0, [0.03 * step for step in range(STEPS)], spread=narrow)
    solved = run(0, [0.9] * STEPS, spread=narrow)
    assert SPREAD.first(rising.history, 0.3) is None
    assert SPREAD.first(solved.history, 0.3) is None


def test_the_threshold_is_chosen_on_even_seeds_and_tested_on_odd_ones() -> None:
    assert chosen(SPREAD, [TRAPPED, SOUND]).threshold == 0.6
    assert chosen(SPREAD, [TRAPPED]).threshold == 0.3
    odd = [Run("a", 1, TRAPPED.history), Run("b", 3, SOUND.history)]
    found = scores([TRAPPED, SOUND, *odd])
    assert found[0]["chosen"].leads == found[0]["tested"].leads == [4]
    text = markdown(found)
    row = "| spread of rewards falls | 0.45 | 1 of 1 | 4 | 0 of 1 | 1 of 1 | 4 | 0 of 1 |"
    assert row in text


def test_only_finished_runs_with_steps_enough_are_read(tmp_path: Path) -> None:
    for name, steps, is_finished in (("a-1", 8, True), ("b-2", 8, False), ("c-3", 4, True)):
        folder = tmp_path / name
        folder.mkdir()
        lines = [json.dumps({"step": n, "rollout/success": 0.5}) for n in range(steps)]
        (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        if is_finished:
            (folder / "report.json").write_text("{}")
    assert [(one.name, one.seed) for one in read_runs(tmp_path)] == [(f"{tmp_path.name}/a-1", 1)]

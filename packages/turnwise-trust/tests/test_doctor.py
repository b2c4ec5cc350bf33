"""The command `doctor`: the first cause of sick logs, silence on healthy ones, bad input."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from doctor_logs import (
    HEALTHY,
    SICK,
    STEPS,
    flat,
    rows_of,
    trl_curves,
    turnwise_curves,
    write_lines,
    write_trl,
    write_turnwise,
)
from tests.commands.shell import Shell
from turnwise.errors import ConfigError, DataError
from turnwise.storage.audits import audits
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows
from turnwise_trust.doctor.diagnosis import diagnosed
from turnwise_trust.doctor.gathering import NAMES, gathered
from turnwise_trust.doctor.gathering import STEPS as ROWS
from turnwise_trust.doctor.log import Measured, Rollout
from turnwise_trust.doctor.readers.plain import mapping_of
from turnwise_trust.doctor.reading import read
from turnwise_trust.doctor.remedies import ADVICE
from turnwise_trust.doctor.rules.base import answers, forms
from turnwise_trust.doctor.rules.behaviour import echo_trap
from turnwise_trust.page import Page

SEED = 1


def page_of(words: list[str]) -> Page:
    paths = [Path(word) for word in words if "=" not in word]
    return diagnosed(read(paths, mapping_of([word for word in words if "=" in word])))


@pytest.mark.parametrize("name", SICK)
def test_the_first_cause_of_a_sick_log(name: str, tmp_path: Path):
    expected, make = SICK[name]
    found = page_of(make(tmp_path, SEED)).failed
    assert [one.check for one in found[:1]] == [expected]
    assert found[0].note
    assert found[0].remedy


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_log_is_left_in_peace(name: str, tmp_path: Path):
    page = page_of(HEALTHY[name](tmp_path, SEED))
    assert page.failed == []
    assert page.verdict.startswith("Nothing wrong is seen")


def test_the_command_prints_a_page_and_says_by_its_code_whether_a_cause_was_found(
    shell: Shell, tmp_path: Path
):
    sick = SICK["TRL, learning rate 0"][1](tmp_path / "sick", SEED)
    page = tmp_path / "page.md"
    found = shell("doctor", *sick, "--json", "--page", page, code=1).json
    assert found["verdict"].startswith("Most likely: learning rate.")
    assert "TRL: learning_rate" in page.read_text()
    healthy = HEALTHY["TRL"](tmp_path / "healthy", SEED)
    assert "Nothing wrong is seen" in shell("doctor", *healthy).out


def test_what_a_log_does_not_hold_is_said(tmp_path: Path):
    file = write_lines(tmp_path / "h.jsonl", [{"step": n, "loss": 1.0} for n in range(20)])
    page = page_of([str(file)])
    assert page.verdict.startswith("Little can be said: the log holds no rewards")
    assert "entropy (needs policy/entropy)" in next(
        one.note for one in page.findings if one.check == "not in the log"
    )


def test_a_log_that_is_cut_off_is_read_up_to_there(tmp_path: Path):
    rows = rows_of(turnwise_curves(np.random.default_rng(SEED), np.linspace(0.1, 0.6, STEPS)))
    write_turnwise(tmp_path, {"reward/mean": np.ones(STEPS)})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "run" / "metrics.jsonl").write_text(text[: len(text) - 100])
    page = page_of([str(tmp_path / "run")])
    notes = [one.note for one in page.findings if one.check == "not read"]
    assert "the last line of metrics.jsonl is cut off, and was left out." in notes
    assert page.failed == []


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.jsonl", "", "is empty$"),
        ("a.jsonl", '{"colour": 1}\n', "no format"),
        ("a.jsonl", '[{"step": 1}]', "is one array: write a line for each"),
        ("a.jsonl.gz", "\x1f\x8b", "is packed: unpack it first$"),
        ("a.jsonl", '{"step": 1, "colour": 2}\n', "none of its numbers .* reward=FIELD"),
        ("a.csv", "1,2\n3,4\n", "none of its numbers"),
        ("trainer_state.json", '{"log_history": [{"st', "is cut off"),
        ("a.bin", "x", "no format"),
    ],
)
def test_a_file_in_no_known_format_is_refused(tmp_path: Path, name: str, text: str, said: str):
    (tmp_path / name).write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match=said):
        read([tmp_path / name], {})


@pytest.mark.parametrize(
    ("name", "text", "remark"),
    [
        (
            "h.jsonl",
            '{"step": 1, "reward": 1}\nnull\n[1]\n',
            "2 lines of h.jsonl are no objects, line 2 the first",
        ),
        (
            "h.jsonl",
            '{"step": 1, "reward": 1}\n{"completion": "a", "score": 0}\n',
            "1 lines of h.jsonl share no field with its first",
        ),
        (
            "h.jsonl",
            "".join(f'{{"step": {step}, "reward": 1}}\n' for step in (0, 1, 0, 2, 0)),
            "h.jsonl begins again at step 0 after step 1",
        ),
        (
            "h.csv",
            "Step,a - reward,a - reward__MIN,a - kl,b - reward\n1,1,0,0,1\n",
            "h.csv has reward of several runs",
        ),
    ],
    ids=["no objects", "another format", "two runs", "a table of two runs"],
)
def test_what_is_odd_in_a_file_is_said(tmp_path: Path, name: str, text: str, remark: str):
    (tmp_path / name).write_text(text)
    log = read([tmp_path / name], {})
    (said,) = log.remarks
    assert said.startswith(remark)
    assert set(log.values("reward/mean")) == {1.0}


def test_a_value_that_is_too_large_to_be_held_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "trainer_state.json"
    file.write_text('{"log_history": []}')
    monkeypatch.setattr("turnwise_trust.doctor.readers.lines.LARGEST", 10)
    with pytest.raises(DataError, match="are read at once: give a log in lines"):
        read([file], {})


def test_an_evaluation_log_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path: Path):
    (name,) = HEALTHY["Inspect"](tmp_path, SEED)
    data = Path(name).read_bytes()
    Path(name).write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match=r"log\.eval is cut off or damaged"):
        read([Path(name)], {})


def test_a_run_without_a_step_of_rl_is_said_to_have_none(tmp_path: Path):
    (run,) = write_turnwise(tmp_path, {"reward/mean": np.ones(STEPS)})
    (Path(run) / "metrics.jsonl").unlink()
    with pytest.raises(DataError, match="nothing can be said of it: it has no step of RL"):
        page_of([run])


def test_a_file_that_is_not_there_is_refused(shell: Shell, tmp_path: Path):
    assert "does not exist" in shell("doctor", tmp_path / "nowhere", code=2).err
    assert "File name too long" in shell("doctor", "x" * 300, code=2).err


def test_fields_that_there_are_not_are_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="colour=red is no file, no folder and no field"):
        mapping_of(["colour=red"])
    file = write_lines(tmp_path / "mine.jsonl", [{"r": 1.0}])
    log = read([file], mapping_of(["reward=r", "step=when"]))
    assert log.remarks == ("no line of mine.jsonl has the field when",)


def test_damaged_samples_of_an_evaluation_are_left_out(tmp_path: Path):
    file = tmp_path / "log.eval"
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for name in "ab":
            archive.writestr(f"samples/{name}.json", json.dumps({"id": name, "scores": {}}))
    data = bytearray(file.read_bytes())
    at = data.rfind(b"samples/b.json", 0, data.find(b"PK\x01\x02")) + len("samples/b.json")
    data[at] = 0xFF  # no kind of block
    file.write_bytes(data)
    log = read([file], {})
    assert log.rollouts == 1
    assert log.remarks[0].startswith("log.eval is cut off or damaged")


def test_a_table_with_a_mark_of_its_encoding_is_read(tmp_path: Path):
    file = tmp_path / "history.csv"
    file.write_text("Step,reward\n1,0.5\n2,0.25\n", encoding="utf-8-sig")
    assert read([file], {}).values("reward/mean").tolist() == [0.5, 0.25]


def test_the_state_of_the_newest_checkpoint_is_read_whatever_its_time(tmp_path: Path):
    for count, time in ((9, 300), (10, 200)):
        state = tmp_path / f"checkpoint-{count}" / "trainer_state.json"
        state.parent.mkdir()
        rows = [{"step": step, "reward": 1.0} for step in range(count)]
        state.write_text(json.dumps({"log_history": rows}))
        os.utime(state, (time, time))
    assert read([tmp_path], {}).steps == 10


def test_a_folder_of_trajectories_is_known_among_other_files(tmp_path: Path):
    for number in range(8):
        (tmp_path / f"{number}.json").write_text('{"n": 1}')
    (tmp_path / "latest.json").symlink_to(tmp_path / "gone.json")
    episode = {"schema_version": "ATIF-v1.6", "steps": [{"source": "agent", "message": "hi"}]}
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "trajectory.json").write_text(json.dumps(episode))
    assert read([tmp_path], {}).rollouts == 1


def test_a_table_without_completions_is_refused(tmp_path: Path):
    pq.write_table(pa.table({"seed": [1, 2]}), tmp_path / "tasks.parquet")
    with pytest.raises(DataError, match="has no column completion"):
        read([tmp_path / "tasks.parquet"], {})


def test_an_echo_trap_is_seen_late_in_a_long_log():
    random = np.random.default_rng(SEED)
    spread = np.where(np.arange(900) < 700, 0.4, 0.05) + random.normal(0, 0.01, 900)
    reward = np.where(np.arange(900) < 700, 0.4, 0.2) + random.normal(0, 0.01, 900)
    events = [
        Measured(n, {"reward/group_std": spread[n], "reward/mean": reward[n]}) for n in range(900)
    ]
    (found,) = echo_trap(gathered("long", "turnwise", events))
    assert "Echo Trap: at step 70" in found.finding.note


def test_scalars_of_tensorboard_are_read(tmp_path: Path):
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for step in range(12):
            writer.add_scalar("train/reward", step / 12, step)
    log = read([tmp_path], {})
    assert log.framework == "trl"
    assert log.values("reward/mean") == pytest.approx(np.arange(12) / 12)


@pytest.mark.parametrize(
    ("changes", "reward", "truncated"),
    [
        ({}, 1.0, False),
        ({"ok": False}, None, False),
        ({"stop_condition": "max_turns"}, 1.0, True),
        ({"calls": [{"finish_reason": "stop"}, {"finish_reason": "length"}]}, 1.0, True),
        ({"calls": [{"finish_reason": "length"}, {"finish_reason": "stop"}]}, 1.0, False),
    ],
)
def test_a_trace_is_ungraded_or_cut_off_where_verifiers_says_so(
    tmp_path: Path, changes: dict[str, Any], reward: float | None, truncated: bool
):
    rewards = {"right": {"score": 1.0, "weight": 1.0}, "style": None}
    trace = {"ok": True, "rewards": rewards, "calls": [{"finish_reason": "stop"}], **changes}
    log = read([write_lines(tmp_path / "traces.jsonl", [{"traces": [trace]}])], {})
    assert (log.examples["latest"].reward, log.examples["latest"].truncated) == (reward, truncated)


def test_a_single_group_is_no_evidence(tmp_path: Path):
    row = {"responses_create_params": {}, "_ng_task_index": 0, "reward": 1.0}
    file = write_lines(tmp_path / "rollouts.jsonl", [row] * 5)
    assert diagnosed(read([file], {})).failed == []


NOISE = np.random.default_rng(SEED).normal(0, 0.01, STEPS)
RISE, FALL = np.linspace(0.2, 0.6, STEPS) + NOISE, np.linspace(0.6, 0.1, STEPS) + NOISE
LEVEL = 0.3 + NOISE
SPIKES = np.where(np.arange(STEPS) % 8 == 7, 100.0, 1.0)


@pytest.mark.parametrize(
    ("check", "numbers"),
    [
        ("learning rate", {"reward/mean": LEVEL, "policy/weights_changed": LEVEL / 100}),
        ("learning rate", {"reward/mean": LEVEL, "policy/kl_reference": LEVEL / 1e5}),
        ("gradient", {"reward/mean": LEVEL, "policy/gradient_norm": 0 * LEVEL}),
        ("stopped tokens", {"reward/mean": LEVEL, "correction/rejected_fraction": 3 * LEVEL}),
        ("stopped tokens", {"reward/mean": LEVEL, "policy/filtered_fraction": 3 * LEVEL}),
        ("update size", {"reward/mean": LEVEL, "policy/approx_kl": LEVEL}),
        ("exploding gradient", {"reward/mean": LEVEL, "policy/gradient_norm": SPIKES}),
        ("engine and learner", {"reward/mean": LEVEL, "policy/mismatch_kl": LEVEL}),
        ("engine and learner", {"reward/mean": LEVEL, "correction/weight": LEVEL}),
        ("entropy explosion", {"reward/mean": FALL, "policy/entropy": RISE**2}),
        ("length collapse", {"reward/mean": LEVEL, "rollout/length_mean": 100 * FALL}),
        ("tool errors", {"reward/mean": LEVEL, "rollout/tool_success": LEVEL}),
        ("evaluation at its ceiling", {"validation/success": 1 - LEVEL / 100}),
    ],
)
def test_what_numbers_alone_tell(check: str, numbers: dict[str, np.ndarray]):
    events = [
        Measured(step, {name: float(values[step]) for name, values in numbers.items()})
        for step in range(STEPS)
    ]
    found = diagnosed(gathered("numbers", "turnwise", events)).failed
    assert check in [one.check for one in found]


def test_keys_of_remedies_are_keys_of_recipes():
    pages = Path(__file__).parents[3] / "docs" / "reference"
    known = "".join((pages / name).read_text() for name in ("recipe.md", "algorithms.md"))
    known += (pages / "algorithm_parts.md").read_text()
    texts = [keys.get("turnwise", "") for _, keys in ADVICE.values()]
    named = re.findall(r"\b(?:[a-z_]+\.)+([a-z_]+)", " ".join(texts))
    assert len(named) > 30
    assert [key for key in named if key not in known] == []


ODD = (None, [], {}, "x", -1, 1e308, float("nan"), 10**400, True, [1, "a"], {"a": [None]})


def with_odd_values(value: Any, random: Random) -> Any:
    """A value of JSON in which some values are of another type."""
    if random.random() < 0.05:
        return random.choice(ODD)
    if isinstance(value, dict):
        return {name: with_odd_values(inner, random) for name, inner in value.items()}
    return [with_odd_values(one, random) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "name", ["turnwise", "verl rollouts", "prime-rl", "verifiers", "plain", "NeMo Gym"]
)
def test_values_of_another_type_are_left_out(name: str, tmp_path: Path):
    words, random = HEALTHY[name](tmp_path, SEED), Random(name)
    for file in tmp_path.rglob("*.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()[:60]]
        write_lines(file, [with_odd_values(row, random) for row in rows])
    assert page_of(words).verdict


def test_a_gradient_that_is_spelled_nan_is_not_finite(tmp_path: Path):
    rows = [{"_step": step, "train/grad_norm": "NaN"} for step in range(12)]
    page = diagnosed(read([write_lines(tmp_path / "h.jsonl", rows)], {}))
    assert page.failed[0].check == "numbers that are not finite"


def test_rewards_that_are_no_numbers_are_not_made_into_any(tmp_path: Path):
    rows = [{"s": n, "r": value} for n in range(12) for value in (float("nan"), "1.0", None, 0.5)]
    file = write_lines(tmp_path / "mine.jsonl", rows)
    log = read([file], mapping_of(["step=s", "reward=r"]))
    assert log.mean("reward/mean") == 0.5
    assert log.mean("rollout/ungraded_share") == 0.75
    assert log.broken["reward/mean"].steps == 12


def test_an_episode_of_which_success_alone_is_known_is_graded(tmp_path: Path):
    rows = [{"s": n // 4, "ok": n % 2 == 0} for n in range(80)]
    file = write_lines(tmp_path / "mine.jsonl", rows)
    assert diagnosed(read([file], mapping_of(["step=s", "success=ok"]))).failed == []


def test_a_long_log_is_kept_as_means():
    events = (Measured(step, {"reward": float(step % 2)}) for step in range(10 * ROWS))
    log = gathered("long", "", events)
    assert len(log.values("reward/mean")) <= ROWS
    assert log.mean("reward/mean") == pytest.approx(0.5)


def test_a_reading_that_is_interrupted_tells_of_what_was_read():
    def events() -> Iterator[Measured]:
        yield Measured(1, {"reward": 0.5})
        raise KeyboardInterrupt

    log = gathered("long", "", events())
    assert log.mean("reward/mean") == 0.5
    assert "interrupted" in log.remarks[0]


def test_numbers_that_are_too_many_to_be_kept_are_said():
    values = {f"reward/parts/{number}": 1.0 for number in range(NAMES + 1)}
    log = gathered("wide", "", [Measured(1, values)])
    assert len(log.series) == NAMES
    assert log.remarks == (f"a step has more than {NAMES} numbers: the others were left out",)


def test_groups_are_compared_by_name_and_step():
    rewards = {"a": (0.0, 1.0), "b": (1.0, 1.0)}
    events = [
        Rollout(step=step, group=group, reward=reward, text=f"{group} {reward}")
        for step in range(3)
        for group, pair in rewards.items()
        for reward in pair
    ]
    log = gathered("groups", "", events)
    assert log.values("groups/all_equal").tolist() == [0.5] * 3
    assert log.values("reward/group_std").tolist() == [0.25] * 3
    assert log.values("repetition/episodes").tolist() == [0.5] * 3


def test_the_log_s_own_numbers_stand_before_those_of_its_texts(tmp_path: Path):
    random = np.random.default_rng(SEED)
    words = write_trl(tmp_path, trl_curves(random, flat(random, 0.3)), rewards=True)
    log = read([Path(words[0])], {})
    assert len(log.values("reward/mean")) == len(log.values("reward/group_std")) == STEPS
    assert log.rollouts == STEPS


def test_columns_of_completions_that_are_no_rewards_are_not_added(tmp_path: Path):
    curves = trl_curves(np.random.default_rng(SEED), LEVEL)
    (run,) = write_trl(tmp_path, {**curves, "reward": 0 * LEVEL + 0.5}, rewards=True)
    for file in Path(run).glob("completions/*.parquet"):
        table = pq.read_table(file)
        pq.write_table(table.append_column("seconds", pa.array([9.0] * len(table))), file)
    log = read([Path(run)], {})
    assert log.examples["best"].reward == 1.0


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("accuracy_reward", "answer"),
        ("exact_match", "answer"),
        ("format_correct", "form"),
        ("tag_count", "form"),
        ("stage_problem", "neither"),
    ],
)
def test_parts_of_rewards_are_told_apart_by_name(name: str, kind: str):
    log = gathered("parts", "", [Rollout(0, parts={name: n / 2}, reward=1.0) for n in range(2)])
    found = {"answer": answers(log), "form": forms(log), "neither": []}
    assert found[kind] == ([f"reward/parts/{name}"] if kind != "neither" else [])
    assert len(answers(log) + forms(log)) == (kind != "neither")


def test_control_characters_of_a_text_do_not_reach_the_terminal(shell: Shell, tmp_path: Path):
    rows = [{"s": n, "r": 0.0, "g": "one", "t": "\x1b[2J gone \ud800"} for n in range(12)] * 2
    file = write_lines(tmp_path / "mine.jsonl", rows)
    words = (file, "step=s", "reward=r", "group=g", "text=t")
    out = shell("doctor", *words, "--json", code=1).json
    assert "\\x1b[2J gone" in json.dumps(out["findings"][0]["note"]).replace("\\\\", "\\")
    page = tmp_path / "page.md"
    assert "\x1b[2J" not in shell("doctor", *words, "--page", page, code=1).out
    assert "gone ?" in page.read_text()


@pytest.mark.long
def test_the_dashboard_opens_a_log_of_another_framework(tmp_path: Path, shell: Shell):
    words = SICK["verl rollouts, none succeeds"][1](tmp_path, SEED)
    shell("doctor", *words, "--folder", tmp_path / "shown", code=1)
    folder = RunFolder.open(tmp_path / "shown")
    metrics = folder.lines("metrics.jsonl")
    assert len(metrics) == STEPS
    assert all("reward/mean" in line for line in metrics)
    rows = read_rows(folder.trajectory_file("step-000001"))
    assert len(rows) == 32
    assert json.loads(rows[0]["actions"])[0]["text"]
    assert "doctor" in audits(folder.path)
    again = shell("doctor", *words, "--folder", folder.path, code=2)
    assert "Most likely: dead groups" in again.out
    assert "is not empty" in again.err

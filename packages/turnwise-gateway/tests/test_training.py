"""Runs in which an agent of one's own plays: trained, recorded, resumed exactly, and refused."""

import json
import sys
import time
from pathlib import Path

import pytest

from gateway_tests.playing import ASKING
from tests.fakes import Letters
from tests.processes import ended
from tests.small_runs import interrupted, resume, start, train, write_recipe
from turnwise.config import load_recipe
from turnwise.errors import ConfigError, RunStoppedError
from turnwise.storage.checkpoint import newest
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows, trajectory_of
from turnwise.types import Task

pytest.importorskip("uvicorn")
AGENT = Path(__file__).with_name("asking_agent.py")
TABLES = f"""
agent = "{AGENT}:run"
rollout = {{ max_turns = 3, max_turn_tokens = 12, max_tokens = 200 }}
sft.steps = 0
train = {{ steps = 2, tasks_per_step = 2, group_size = 2, checkpoint_every = 1 }}
evaluation.tasks = 2
"""


def recipe(folder: Path) -> Path:
    """A small run with the agent."""
    return write_recipe(folder, Letters.__name__, TABLES)


def test_a_run_trains_on_what_the_agent_was_given(tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run", False)
    train(recipe(tmp_path), folder)
    metrics = list(folder.lines("metrics.jsonl"))
    assert [line["agent/calls"] for line in metrics] == [2.0, 2.0]
    assert all(line["agent/coverage"] == 1.0 for line in metrics)
    assert folder.report()["trained"]["n"] == 2
    rows = read_rows(next(iter(sorted(folder.path.glob("trajectories/step-*.parquet")))))
    for row in rows:
        read = trajectory_of(row, Task(row["task"], row["prompt"]))
        assert read.capture.calls == len(read.turns) == 2
        assert read.capture.trained == int(read.tokens.mask.sum())
        assert any(row["advantage"])


def stopped(folder: Path, file: Path, *changes: str) -> RunFolder:
    """A run, which ends with the same weights and numbers where it is stopped after a step."""
    whole = RunFolder.new(folder / "whole", False)
    train(file, whole, *changes)
    parts = interrupted(whole, folder / "parts", "step-000002")
    resume(parts)
    found = [newest(run.checkpoints)[0] for run in (whole, parts)]
    first, second = ((one.folder / "model.safetensors").read_bytes() for one in found if one)
    assert first == second
    assert list(whole.lines("metrics.jsonl")) == list(parts.lines("metrics.jsonl"))
    return whole


PROGRAM = f"""{ASKING}
folder, words = sys.argv[1:]
for turn in range(2):
    ask(words + "!" * turn)
    if turn == 0 and os.path.exists(folder + "/checkpoints/step-000001/SHA256SUMS"):
        with open(folder + "/held", "a") as held:
            held.write(f"{{os.getpid()}} ")
        while not os.path.exists(folder + "/go"):
            time.sleep(0.05)
"""


@pytest.mark.slow
def test_a_run_that_is_killed_in_mid_episode_leaves_no_agent_and_plays_it_again(
    tmp_path: Path,
) -> None:
    """The four programs of the second step wait when the run is killed."""
    program, file = tmp_path / "program.py", recipe(tmp_path)
    program.write_text(PROGRAM)
    whole, killed = (RunFolder.new(tmp_path / name, False) for name in ("whole", "killed"))
    for folder in (whole, killed):
        folder.path.mkdir(exist_ok=True)
    (whole.path / "go").touch()
    words = [sys.executable, "-S", str(program)]
    agent = f"agent={json.dumps([*words, str(whole.path), '{prompt}'])}"
    train(file, whole, agent, "evaluation.tasks=0")
    agent = agent.replace(str(whole.path), str(killed.path))
    with start("train", file, agent, "evaluation.tasks=0", "--run", killed.path) as process:
        held = killed.path / "held"
        while not held.exists() or len(held.read_text().split()) < 4:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.kill()
    assert ended(map(int, held.read_text().split()))
    (killed.path / "go").touch()
    resume(killed)
    assert list(whole.lines("metrics.jsonl")) == list(killed.lines("metrics.jsonl"))


@pytest.mark.long
def test_replies_that_are_lost_stop_the_run(tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run", False)
    file = recipe(tmp_path)
    with pytest.raises(RunStoppedError, match=r"undelivered\), and agent.coverage asks for 0.95"):
        train(file, folder, f"agent={AGENT}:hang_up", "evaluation.tasks=0")


def roles(folder: Path, worker: str) -> Path:
    """The small run with a planner that is trained, and a worker."""
    written = recipe(folder)
    roles = f"""
agent.credit = "role"
agent.roles = {{ planner.policy = "trained", worker.policy = {worker} }}
agent.run = "{AGENT}:with_roles"
"""
    written.write_text(written.read_text().replace(f'agent = "{AGENT}:run"\n', roles))
    return written


@pytest.mark.long
def test_roles_are_trained_apart(tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run", False)
    train(roles(tmp_path, '"trained"'), folder, "train.steps=1", "evaluation.tasks=0")
    (line,) = folder.lines("metrics.jsonl")
    assert line["rollout/episodes"] == 4
    assert line["role/planner/calls"] == line["role/worker/calls"] == 1
    assert line["role/planner/coverage"] == line["role/worker/coverage"] == 1
    assert line["agent/calls"] == 2
    rows = read_rows(next(folder.path.glob("trajectories/step-*.parquet")))
    names = [row["group"].rpartition("@")[2] for row in rows]
    assert names == [name for _ in range(2) for name in ("planner", "worker") for _ in range(2)]
    read = [trajectory_of(row, Task(row["task"], row["prompt"])) for row in rows]
    assert sum(int(one.tokens.mask.sum()) for one in read) == line["rollout/tokens_sampled"]
    assert [turn.role for one in read for turn in one.turns] == names


@pytest.mark.slow
def test_a_frozen_role_keeps_its_weights_through_a_stop(tmp_path: Path) -> None:
    """Its replies are those of the beginning, so a run that was stopped has the same ones."""
    whole = stopped(tmp_path, roles(tmp_path, '"frozen"'), "learning.learning_rate=0.05")
    for line in whole.lines("metrics.jsonl"):
        assert line["role/worker/tokens_sampled"] > 0
        assert "role/worker/coverage" not in line
        assert line["agent/coverage"] == 1
    (row, *_) = read_rows(next(whole.path.glob("trajectories/step-*.parquet")))
    assert row["group"].endswith("@planner")


@pytest.mark.long
def test_an_episode_without_a_token_is_in_its_group_s_baseline(tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run", False)
    agent = f"agent={{run='{AGENT}:hang_up_at_times', coverage=0.0}}"
    train(recipe(tmp_path), folder, agent, "evaluation.tasks=0", "train.group_size=4")
    for line in folder.lines("metrics.jsonl"):
        assert line["outcome/agent_abort"] == 4
        assert line["agent/coverage"] < 1
        assert line["rollout/ungraded"] == 0


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ('environment.tools=["calculate"]', "environment.tools"),
        ("environment.latency={mean=1.0}", "environment.latency"),
        ("agent.coverage=2", "agent.coverage"),
        ("agent.color=1", "unknown key"),
        ("agent.credit=role", "agent.credit = .role. needs roles"),
        ("agent.roles.judge.policy=frozen", "none is trained"),
        ("agent.roles.judge.policy=other", "agent.roles.judge.policy"),
        ("agent.roles.judge.policy.url=x", "agent.roles.judge.policy.kind"),
        ("agent={command=[]}", "agent.command"),
    ],
)
def test_settings_that_do_not_go_with_an_agent_are_refused(
    tmp_path: Path, override: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load_recipe(str(recipe(tmp_path)), [override])


def test_an_agent_is_a_name_a_list_or_a_table(tmp_path: Path) -> None:
    file = str(recipe(tmp_path))
    assert load_recipe(file).agent.run == f"{AGENT}:run"
    listed = load_recipe(file, ['agent=["node", "agent.mjs"]']).agent
    assert listed.command == ("node", "agent.mjs")
    assert load_recipe(file, ["agent=false"]).agent is None

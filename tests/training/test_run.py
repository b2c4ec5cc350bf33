"""The loop: a run repeats exactly, goes on exactly after a kill, and stops in good order.

Promises 1, 5 and 7. Runs are real ones, of a small random model on the smallest environment.
"""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from transformers import AutoModelForCausalLM

from tests import small_runs
from tests.fakes import save_small_model
from tests.small_runs import FAKES, prepared, start
from turnwise.errors import ConfigError, RunStoppedError
from turnwise.forward import compute_type
from turnwise.monitor.display import TerminalDisplay
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows
from turnwise.threads import configure_threads
from turnwise.training.echo_trap_watch import EchoTrapWatch
from turnwise.training.learners import Learners
from turnwise.training.validation import Validation

pytestmark = pytest.mark.long

TABLES = """
engine = { max_sequences = 4 }
rollout = { max_turns = 3, max_turn_tokens = 24, max_tokens = 200 }
sft.steps = 6
sft.batch_size = 8
sft.demonstrations = { count = 16, behaviours = { faithful = 1, mistaken = 1 } }
sft.checkpoint_every = 3
learning = { learning_rate = 1e-3 }
train = { steps = 5, tasks_per_step = 2, group_size = 4, checkpoint_every = 2 }
evaluation = { tasks = 2 }
"""


def train(*arguments: str | Path) -> None:
    """In a process of its own."""
    process = start("train", *arguments)
    _, errors = process.communicate()
    assert process.returncode == 0, errors


def run_here(recipe: Path, run: Path, *overrides: str) -> Path:
    """In this process, with all checkpoints kept."""
    configure_threads(1)
    folder = RunFolder.new(run)
    small_runs.train(recipe, folder, *overrides, "train.keep_checkpoints=9")
    return run


def gone_on(whole: Path, run: Path, last: int = 5) -> Path:
    """A copy that goes on from the checkpoint of its second step, as after a kill later on."""
    lost = [f"step-{step:06d}" for step in (4, last)]
    small_runs.resume(small_runs.interrupted(RunFolder(whole), run, *dict.fromkeys(lost)))
    return run


@pytest.fixture(scope="module")
def whole_run(recipe: Path) -> Path:
    run = recipe.parent / "whole"
    train(recipe, "--run", run)
    updates = [line["policy/updates"] for line in RunFolder(run).lines("metrics.jsonl")]
    assert updates == [1.0] * 5  # a run that learns nothing would be resumed exactly by anything
    return run


def assert_same(first: Path, second: Path) -> None:
    small_runs.assert_same(RunFolder(first), RunFolder(second), "step-000005")
    for file in RunFolder(first).trajectory_files():
        rows, others = read_rows(file), read_rows(second / "trajectories" / file.name)
        assert [row["ids"] for row in rows] == [row["ids"] for row in others]


def test_the_same_seed_gives_the_same_run(recipe: Path, whole_run: Path) -> None:
    """In another process, too."""
    assert_same(whole_run, run_here(recipe, recipe.parent / "again"))


@pytest.mark.parametrize(
    ("awaited", "delay"),
    [
        ("trajectories/step-000003.parquet", 0.0),  # between checkpoints
        # in the cold start, in the first rollout, and somewhere in the middle
        pytest.param("checkpoints/cold_start/step-000003", 0.0, marks=pytest.mark.slow),
        pytest.param("evaluations/cold_start.json", 0.0, marks=pytest.mark.slow),
        pytest.param("metrics.jsonl", 0.15, marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_ends_like_one_that_never_stopped(
    recipe: Path, whole_run: Path, tmp_path: Path, awaited: str, delay: float
) -> None:
    run = tmp_path / "killed"
    process = start("train", recipe, "--run", run)
    while process.poll() is None and not list(run.glob(awaited)):
        time.sleep(0.001)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (run / "report.json").exists()
    train("--resume", run)
    assert_same(whole_run, run)


def critic(folder: RunFolder) -> None:
    lines = folder.lines("metrics.jsonl")
    assert ["policy/loss" in line for line in lines] == [False, False, True, True, True]
    assert all("critic/explained_variance" in line for line in lines)


def curriculum(folder: RunFolder) -> None:
    lines = folder.lines("metrics.jsonl")
    measured = [line["curriculum/measured"] for line in lines]
    assert 3 / 8 == measured[0] < measured[1] < measured[-1]
    assert sum(line["policy/updates"] for line in lines) > 0
    assert all(line["reward/penalty"] > 0 for line in lines)
    assert all(0 <= line["batch/left_out"] < 1 for line in lines)


def horizon(folder: RunFolder) -> None:
    lines = folder.lines("metrics.jsonl")
    assert lines[0]["rollout/horizon"] == 1 < lines[-1]["rollout/horizon"]
    assert lines[0]["rollout/temperature"] == 1.0 > lines[-1]["rollout/temperature"] >= 0.7
    gap = max(line["policy/logprob_gap"] for line in lines)
    assert gap < 1e-4  # tokens are scored at the temperature that they were sampled at


def contexts(folder: RunFolder) -> None:
    lines = folder.lines("metrics.jsonl")
    assert all(line["rollout/contexts"] > 1 for line in lines)
    assert max(line["policy/logprob_gap"] for line in lines) < 1e-4
    rows = read_rows(folder.path / "trajectories" / "step-000003.parquet")
    assert {len(row["contexts"]) for row in rows} > {1}
    assert any(action["summary"] for row in rows for action in json.loads(row["actions"]))


def self_teacher(folder: RunFolder) -> None:
    """Its average is neither the policy nor what the run began with."""
    for name in ("policy/updates", "self_teacher/taught", "self_teacher/divergence"):
        assert any(line.get(name, 0) > 0 for line in folder.lines("metrics.jsonl")), name


def teacher(folder: RunFolder) -> None:
    lines = folder.lines("metrics.jsonl")
    assert all(line["auxiliary/demonstration_tokens"] > 0 for line in lines)
    assert all(line["teacher/reverse_kl"] for line in lines)


def changing(metric: str) -> Callable[[RunFolder], None]:
    """It is another number in each step."""

    def check(folder: RunFolder) -> None:
        assert len({line[metric] for line in folder.lines("metrics.jsonl")}) == 5

    return check


LEVELS = f"environment.name={FAKES}:Levels sft.steps=0 rollout.max_turn_tokens=12"
PPO = "algorithm.name=ppo algorithm.critic.pretraining_steps=2"
WING = pytest.mark.wing("algorithms")
GOES_ON = [
    pytest.param(PPO, critic, id="critic"),
    pytest.param(f"{PPO} algorithm.critic.kind=head", critic, id="critic on the policy's body"),
    pytest.param(
        f"{LEVELS} curriculum=by_success train.tasks_per_step=3 rollout.max_turns=2 "
        "algorithm.reward_shaping=overlong algorithm.overlong_band=1 "
        "algorithm.trajectory_filter=overlong",
        curriculum,
        id="curriculum",
    ),
    pytest.param(
        f"{LEVELS} rollout.horizon={{turns=1,target=0.2,window=1}} "
        "rollout.temperature_schedule={temperature=0.7,to_step=4}",
        horizon,
        id="horizon and temperature",
    ),
    pytest.param(
        "rollout.max_turns=5 rollout.max_turn_tokens=8 rollout.max_tokens=480 "
        "rollout.context=summarise sft.steps=0",
        contexts,
        id="contexts",
    ),
    pytest.param(
        "algorithm.kl_reward_coefficient=0.1 algorithm.kl_target=0.01 algorithm.kl_horizon=16",
        changing("policy/kl_coefficient"),
        id="adapted KL",
    ),
    pytest.param(
        "algorithm.name=prime algorithm.group_filter=none",
        changing("implicit_reward/gradient_norm"),
        id="process rewards",
        marks=WING,
    ),
    pytest.param(
        "algorithm.name=distillation algorithm.teacher.model={teacher} "
        "algorithm.demonstration_coefficient=0.1",
        teacher,
        id="teacher and demonstrations",
        marks=WING,
    ),
    pytest.param(f"{LEVELS} algorithm.name=sdpo", self_teacher, id="self-teacher", marks=WING),
    pytest.param(f"{LEVELS} algorithm.name=hero", self_teacher, id="feedback", marks=WING),
]
"""Changes of the recipe, and what has to be seen of them in the whole run."""


@pytest.mark.slow
@pytest.mark.parametrize(("changes", "check"), GOES_ON)
def test_a_run_goes_on_exactly_whatever_it_remembers(
    recipe: Path, tmp_path: Path, changes: str, check: Callable[[RunFolder], None]
) -> None:
    """From between checkpoints, when some tasks have been measured and some have not."""
    other = save_small_model(tmp_path / "teacher", seed=1)
    given = changes.replace("{teacher}", str(other)).split()
    whole = run_here(recipe, tmp_path / "whole", *given)
    check(RunFolder(whole))
    assert_same(whole, gone_on(whole, tmp_path / "killed"))


def test_a_step_is_filled_up_while_the_filter_leaves_too_few(recipe: Path, tmp_path: Path) -> None:
    """The best quarter of two groups is one group: three rounds are needed for two, and a fourth
    is not sampled."""
    overrides = ("algorithm.group_filter=top_spread", "train.steps=1", "sft.steps=0")
    run = run_here(recipe, tmp_path / "resampled", *overrides, "train.dynamic_sampling_rounds=9")
    (line,) = RunFolder(run).lines("metrics.jsonl")
    assert line["rollout/episodes"] == 3 * 2 * 4
    rows = read_rows(run / "trajectories" / "step-000001.parquet")
    assert len({row["group"] for row in rows}) == 6
    with pytest.raises(ConfigError, match="leaves none out"):
        run_here(recipe, tmp_path / "refused", "train.dynamic_sampling_rounds=1")


def test_an_echo_trap_stops_a_run_that_asks_for_it(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The history of a run that narrows and no longer gains, and then one step more of it."""
    signs = {"reward/group_std": 0.01, "policy/entropy": 0.1, "reward/mean": 0.5}
    history = [{"step": step, **signs} for step in range(1, 21)]
    for line in history[:5]:
        line |= {"reward/group_std": 0.4, "policy/entropy": 1.0}
    for action in ("off", "warn", "stop"):
        folder, display = RunFolder.new(tmp_path / action), TerminalDisplay(Console(stderr=True))
        asked = f"monitor.echo_trap={action}"
        context = small_runs.prepared(recipe, folder, asked, display=display)
        learners, watch = Learners(context), EchoTrapWatch(context, history, Validation(context, 0))
        if action == "stop":
            with pytest.raises(RunStoppedError, match=r"from 0\.400 to 0\.010"):
                watch.check(20, learners)
        else:
            watch.check(20, learners)
        assert ("Echo Trap: at step 20" in capsys.readouterr().err) is (action != "off")


def test_a_run_that_goes_on_keeps_its_type_whatever_is_fastest_now(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute_type, "SMALL", 0)
    monkeypatch.setattr(compute_type, "PARITY", 99.0)
    folder = RunFolder.new(tmp_path / "run")
    for gain, path, why in (
        (9.0, recipe, "bfloat16 is 9.0 times as fast here"),
        (0.1, folder.path / "config.toml", "as the recipe says; it is 10 times as slow here"),
    ):
        monkeypatch.setattr(compute_type, "speed_of_bfloat16", lambda *_, gain=gain: (gain, ""))
        context = prepared(path, folder)
        assert context.recipe.learning.compute_dtype == "bfloat16"
        assert context.components.why_compute_dtype.startswith(why)
        folder = RunFolder.open(folder.path)


def test_a_run_folder_holds_what_it_says(whole_run: Path) -> None:
    folder = RunFolder.open(whole_run)
    assert [line["step"] for line in folder.lines("metrics.jsonl")] == [1, 2, 3, 4, 5]
    rows = read_rows(whole_run / "trajectories" / "step-000005.parquet")
    assert len(rows) == 8
    assert {row["version"][-1] for row in rows} == {4}
    assert "Paris" not in json.dumps([row["prompt"] for row in rows])
    report = json.loads((whole_run / "report.json").read_text())
    for name in ("cold_start", "trained"):
        assert {"success", "low", "high", "n"} <= report[name].keys()
    assert report["seconds"] > 0
    assert {"environment", "tasks", "tools and budget", "verifier"} <= report["statement"].keys()
    checkpoints = sorted(path.name for path in (whole_run / "checkpoints").iterdir())
    assert checkpoints == ["cold_start", "step-000004", "step-000005"]
    AutoModelForCausalLM.from_pretrained(whole_run / "checkpoints" / "step-000005")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "file"),
    [
        ("model.lora_rank=2", "adapter_model.safetensors"),
        ("model.dtype=bfloat16", "model.safetensors"),  # masters are in the learner's state
    ],
)
def test_adapters_and_rounded_weights_are_trained_resumed_and_evaluated_exactly(
    recipe: Path, tmp_path: Path, option: str, file: str
) -> None:
    pytest.importorskip("peft")
    whole = run_here(recipe, tmp_path / "whole", option, "train.steps=4")
    runs = [whole, gone_on(whole, tmp_path / "killed", last=4)]
    files = [run / "checkpoints/step-000004" / file for run in runs]
    assert files[0].read_bytes() == files[1].read_bytes()
    process = start("evaluate", runs[0], "--json")
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    trained = json.loads((runs[0] / "report.json").read_text())["trained"]
    assert json.loads(output)["n"] == trained["n"]

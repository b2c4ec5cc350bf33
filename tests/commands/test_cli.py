"""The command line: what it prints, what it refuses, and with which exit code."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.commands.shell import Shell
from tests.fakes import save_small_model
from tests.processes import run_python
from tests.small_runs import FAKES, write_recipe
from turnwise.commands.catalogue import catalogue
from turnwise.commands.cli import main
from turnwise.commands.failures import full_memory
from turnwise.config import load_recipe, recipe_keys
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.environments.registry import make_environment
from turnwise.learning.policy import PolicyLearner
from turnwise.threads import SPINS

TABLES = """
rollout = { max_turns = 2, max_turn_tokens = 8, max_tokens = 400 }
train = { steps = 1, tasks_per_step = 2, group_size = 2 }
evaluation = { tasks = 2 }
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def recipe(tmp_path: Path, model: Path) -> Path:
    return write_recipe(tmp_path, "Capitals", TABLES, model)


@pytest.mark.long
def test_train_show_evaluate(shell: Shell, recipe: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    report = shell("train", recipe, "--run", run, "--json").json
    assert report["trained"]["n"] == 2
    assert "reinforcement learning: 1/1" in shell.err
    shown = shell("show", run, "--count", "1").out
    assert "nothing of an evaluation is trained" in " ".join(shown.split())
    assert "All other tokens are masked" in " ".join(shell("show", run, "--step", "1").out.split())
    assert "advantage" in shown
    rows = shell("show", run, "--step", "1", "--json").json["trajectories"]
    assert len(rows) == 3
    assert None in rows[0]["logprob"]
    assert shell("evaluate", run, "--json").json["n"] == 2
    assert "95% interval" in shell("evaluate", run, "evaluation.tasks=1").out
    assert "--resume" in shell("train", recipe, "--run", run, code=2).err
    shell("train", recipe, "--run", run, "--overwrite", "learning.mask_observations=false")
    assert "trained, and so are obs" in " ".join(shell("show", run, "--step", "1").out.split())
    shell("train", recipe, "--run", run, "--overwrite", "algorithm.name=echo")
    legend = " ".join(shell("show", run, "--step", "1").out.split())
    assert "masked in the policy loss" in legend
    assert "observation_coefficient = 0.05" in legend
    assert (
        "did you mean 'evaluation-trained'"
        in shell("show", run, "--step", "evaluation-traind", code=2).err
    )
    assert "no trajectory with outcome" in shell("show", run, "--outcome", "cancelled", code=2).err


@pytest.mark.long
def test_algorithms(shell: Shell) -> None:
    rows = {row["name"]: row for row in shell("algorithms", "--json").json}
    assert rows["dapo"]["numbers"] == {"clip_high": 0.28}
    assert rows["ppo"]["needs"] == ["critic"]
    assert rows["echo"]["observation_coefficient"] == 0.05
    assert shell("algorithms", "vapo", "--json").json["success_coefficient"] == 0.1
    dapo = shell("algorithms", "dapo", "--json")
    assert "Infinity" not in dapo.out
    assert dapo.json["parts"]["objective"]["numbers"]["dual_clip"] is None
    assert "dual_clip=none" in " ".join(shell("algorithms", "dapo").out.split())
    assert "did you mean 'gspo'" in shell("algorithms", "gsop", code=2).err


OWN_PART = """from turnwise import Environment
from turnwise.environments.base import EnvironmentSpec
from turnwise.rewards.parts import RewardPart, reward_part

@reward_part("brevity", 0, 1)
def brevity(trajectory, words: int):
    \"\"\"1 for nothing written.\"\"\"

class Room(Environment):
    facts = EnvironmentSpec("room", "3", parts={"doors": RewardPart(0, 4, "open doors")})
"""


@pytest.mark.wing("environments")
def test_rewards(shell: Shell, tmp_path: Path) -> None:
    rows = {row["part"]: row for row in shell("rewards", "--json").json}
    assert rows["tool_star"]["high"] == 1.5
    assert rows["length"]["options"] == {"budget": 512, "of": "tokens"}
    assert rows["environment"]["high"] is None
    shown = " ".join(shell("rewards").out.split())
    assert "malformed" in shown
    assert "not known" in shown
    assert "strict=false" in shown
    file = tmp_path / "mine.py"
    file.write_text(OWN_PART)
    (own,) = shell("rewards", f"{file}:brevity", "--json").json
    assert (own["high"], own["options"]) == (1, {"words": None})
    assert "words=to be given" in " ".join(shell("rewards", f"{file}:brevity").out.split())
    (doors,) = shell("rewards", f"{file}:Room", "--json").json
    assert (doors["part"], doors["high"], doors["options"]) == ("doors", 4, {})
    assert "what search reports" in shell("rewards", "search").out
    assert "did you mean 'malformed'" in shell("rewards", "malformd", code=2).err


@pytest.mark.long
@pytest.mark.wing("environments")
def test_environments(shell: Shell) -> None:
    (row,) = shell("environments", "search", "--tasks", "2", "--json").json
    measured = {"name", "tasks", "oracle", "noop", "random", "deterministic", "snapshot"}
    measured |= {"played", "oracle_played"}
    told = {"note", "reference_scores", "warnings", "weaknesses"}
    assert row.keys() == measured | told | {"concurrent", "steps_per_second"}
    assert (row["name"], row["noop"], row["deterministic"]) == ("search", 0.0, True)
    assert "search" in shell("environments", "search", "--tasks", "1").out
    refused = shell("environments", "search", "serach", code=2).err
    assert "did you mean 'search'" in refused
    assert "search " not in refused  # nothing was measured before


BROKEN = """from turnwise import Environment, Task, Verdict

class Broken(Environment):
    def tasks(self, split):
        return [Task(f"{split}/{n}", f"{split} {n}?", {"answer": "x"}) for n in range(3)]

    async def verify(self, trajectory):
        return Verdict(1 / 0, True)
"""


@pytest.mark.wing("environments")
def test_an_error_in_a_users_own_environment_is_one_line_with_its_place(
    shell: Shell, recipe: Path, tmp_path: Path
) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    assert len(shell("environments", f"{file}:Broken", code=2).err.splitlines()) == 1
    place = "ZeroDivisionError: division by zero (broken.py, line 8)"
    said = shell("environments", f"{file}:Broken", code=2).err.replace(f"{tmp_path}/", "")
    assert place in said
    change = f"environment.name={file}:Broken"
    refused = shell("train", recipe, change, "--run", tmp_path / "run", code=3).err
    assert place in refused.replace(f"{tmp_path}/", "")
    file.write_text(BROKEN + "def (")
    said = shell("environments", f"{file}:Broken", code=2).err
    assert "broken.py, line 9" in said
    assert len(said.splitlines()) == 1


def test_version_short_help_and_list(shell: Shell) -> None:
    assert shell("--version").out.startswith("turnwise 0.")
    assert "Usage" in shell("-h").out
    assert "Usage" in shell("train", "-h").out
    names = shell("list", "--json").json
    assert names["recipes"]["demo"]
    assert "search" in names["environments"]
    assert {"grpo", "rloo"} <= names["algorithms"].keys()
    assert "demo" in shell("list").out


@pytest.mark.long
def test_narrow_terminals_lose_no_word_and_terminals_without_unicode_no_output() -> None:
    environment = {**os.environ, "COLUMNS": "30", "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "turnwise", "algorithms", "dapo"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "clip_high=0.28" in done.stdout
    assert done.stdout.isascii()


FIRST_LOOK = """
import os, sys

def hook(event, arguments):
    if event == "import" and arguments[0] == "torch":
        print(os.environ.get("GOMP_SPINCOUNT"))
        sys.stdout.flush()
        os._exit(0)

sys.addaudithook(hook)
from turnwise.commands.catalogue import catalogue
from turnwise.commands.cli import main
main(sys.argv[1:])
"""
"""A command, until it loads torch, which then reads how its threads are to wait."""


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        "train",
        "evaluate",
        "evaluate a run",
        pytest.param("play", marks=pytest.mark.wing("environments")),
    ],
)
def test_threads_are_set_before_torch_is_loaded(recipe: Path, tmp_path: Path, command: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(recipe, run / "config.toml")
    given = command.split()[0], run if command.endswith("run") else recipe
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(FAKES.parents[1])}
    done = run_python(FIRST_LOOK, *given, cwd=tmp_path, env=environment)
    assert done.stdout.split() == [SPINS], done.stderr


WING = pytest.mark.wing("environments")
CODE = "environment.name=code environment.options.tasks.count=2 sandbox.kind="


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("train.stepz=1", "did you mean 'train.steps'"),
        ("threads=5000", "threads is 5000: give a value of at most 1024"),
        ("model.name=/does/not/exist", "no such folder"),
        ("model.device=tpu9", "model.device"),
        ("rollout.max_tokens=100000", "lower it"),
        ("sandbox.kind=docker", "takes no table [sandbox]"),
        pytest.param(
            f"{CODE}docker sandbox.docker=no-such-docker", "no 'no-such-docker' on", marks=WING
        ),
        pytest.param(f"{CODE}sandbox_fusion", "sandbox url", marks=WING),
    ],
)
def test_the_users_mistakes_are_one_line_and_code_2(
    shell: Shell, recipe: Path, tmp_path: Path, change: str, message: str
) -> None:
    refused = shell("train", recipe, *change.split(), "--run", tmp_path / "run", code=2)
    assert message in refused.err
    assert "Traceback" not in refused.err
    assert len(refused.err.strip().splitlines()) == 1


def test_broken_models_are_named(shell: Shell, recipe: Path, tmp_path: Path, model: Path) -> None:
    for broken, message in (
        ("tokenizer.json", "no tokenizer"),
        ("config.json", "no config.json"),
        ("model.safetensors", "cannot be loaded"),
        ("tokenizer.json damaged", "cannot be loaded"),
    ):
        folder = tmp_path / broken.replace(".", "_")
        shutil.copytree(model, folder)
        if broken == "tokenizer.json damaged":
            (folder / "tokenizer.json").write_text("{}")
        elif broken == "model.safetensors":
            (folder / broken).write_bytes((folder / broken).read_bytes()[:1000])
        else:
            (folder / broken).unlink()
        if broken == "tokenizer.json":
            (folder / "tokenizer_config.json").unlink()
        run = tmp_path / f"run-{broken}"
        refused = shell("train", recipe, f"model.name={folder}", "--run", run, code=2)
        assert message in refused.err
        assert len(refused.err.strip().splitlines()) == 1


@pytest.mark.long
def test_what_an_environment_warns_of_is_said(shell: Shell, recipe: Path, tmp_path: Path) -> None:
    documents, questions = tmp_path / "documents.jsonl", tmp_path / "questions.jsonl"
    documents.write_text('{"title": "t", "text": "x"}\n')
    lines = [json.dumps({"question": f"q{number}", "answer": f"a{number}"}) for number in range(40)]
    questions.write_text("\n".join(lines))
    tasks = f"environment.options.tasks={{documents='{documents}',file='{questions}'}}"
    run = tmp_path / "run"
    warned = shell("train", recipe, "environment.name=search", tasks, "--run", run)
    assert "40 of 40 questions have no accepted answer in any document" in warned.err


def test_missing_files_and_folders(shell: Shell, recipe: Path, tmp_path: Path) -> None:
    assert "no such file" in shell("train", tmp_path / "none.toml", code=2).err
    assert "not a run folder" in shell("show", tmp_path, code=2).err
    assert "not a run folder" in shell("train", "--resume", tmp_path, code=2).err
    assert "either a recipe" in shell("train", code=2).err
    resumed = shell("train", "--resume", tmp_path, "--overwrite", code=2)
    assert "--resume goes on" in resumed.err
    assert "nothing to evaluate" in shell("evaluate", recipe, "evaluation.tasks=0", code=2).err


@pytest.mark.parametrize("place", [(PolicyLearner, "update"), (EmbeddedEngine, "advance")])
def test_a_full_gpu_is_one_line_that_names_what_needs_less(
    shell: Shell,
    recipe: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: tuple[type, str],
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 "
            "GiB of which 1.00 GiB is free. If reserved but unallocated memory is large try setting"
        )

    monkeypatch.setattr(*place, full)
    changes = ("sft.steps=0", "train.steps=1", "evaluation.tasks=0")
    ended = shell("train", recipe, *changes, "--run", tmp_path / "run", code=3)
    line = ended.err.strip().splitlines()[-1]
    assert "a total capacity of 79.10 GiB of which 1.00 GiB is free. Updates need less" in line
    keys = re.findall(r"[a-z]+\.[a-z_]+", line)
    assert set(keys) <= set(recipe_keys())
    assert "learning.tokens_per_micro_batch" in keys


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "CUDA error: out of memory\nCUDA kernel errors might",
            "CUDA error: out of memory Updates",
        ),
        ("CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`", "cublasCreate` Updates"),
        ("DefaultCPUAllocator: can't allocate memory: you tried 8 bytes.", "8 bytes. Updates"),
        ("mat1 and mat2 shapes cannot be multiplied", ""),
    ],
)
def test_memory_that_is_full_is_known_by_what_is_said(said: str, told: str) -> None:
    assert told in full_memory(RuntimeError(said))
    assert bool(told) == bool(full_memory(RuntimeError(said)))


def test_a_disk_that_refuses_is_one_line(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    full = partial(Path("/dev/full").write_text, "a page")
    monkeypatch.setattr("turnwise.commands.catalogue.catalogue", full)
    assert shell("list", code=3).err == "turnwise: [Errno 28] No space left on device\n"


def test_a_chat_template_is_refused_before_the_weights_are_read(
    shell: Shell, recipe: Path, model: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(model, tmp_path / "bare")
    (folder / "model.safetensors").unlink()
    (folder / "chat_template.jinja").write_text("{{ messages | length // 0 }}")
    refused = shell("evaluate", recipe, f"model.name={folder}", code=2).err.strip()
    assert "chat template cannot show these messages (" in refused
    assert "by zero): choose scaffold native, another model" in refused
    assert len(refused.splitlines()) == 1


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no such file"):
        main(["train", str(tmp_path / "none.toml"), "--debug"])


@pytest.mark.long
@pytest.mark.wing("environments")
@pytest.mark.parametrize("name", sorted(catalogue()["recipes"]))
def test_every_shipped_recipe_is_evaluated_on_a_thousand_tasks(name: str) -> None:
    recipe = load_recipe(name)
    # There are 939 requests of function_calling's three kinds, for both splits, and about 500
    # boards of sokoban's size.
    assert recipe.evaluation.tasks >= {
        "demo": 300,  # five minutes
        "function_calling": 400,
        "long_walk": 200,
        "smollm2": 500,  # five minutes
        "sokoban": 140,
    }.get(name, 1000)
    environment = make_environment(recipe.environment.name, recipe.environment.options)
    assert len({task.id for task in environment.tasks("heldout")}) >= recipe.evaluation.tasks


@pytest.mark.wing("environments")
def test_play_puts_a_person_in_the_models_place(
    shell: Shell, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = "<lookup> Japan</lookup>\n<answer> Tokyo</answer>\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    shell("play", recipe, "rollout.max_turn_tokens=80")
    assert "The capital is Tokyo." in shell.out
    assert "success, reward 1.0" in shell.out
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert "the input ended" in shell("play", recipe, code=2).err
    assert "Traceback" not in shell.err


class Leaving(io.StringIO):
    """A terminal whose person types Ctrl-C."""

    def readline(self, size: int | None = -1) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("Ctrl-C was put off")


@pytest.mark.wing("environments")
def test_one_ctrl_c_ends_a_game(
    shell: Shell, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Leaving())
    said = shell("play", recipe, code=130)
    assert "interrupted" in said.err
    assert "Traceback" not in said.err


def test_an_option_that_is_a_setting_names_the_keys(shell: Shell) -> None:
    said = shell("train", "demo", "--learning-rate", "1e-5", code=2).err
    assert "no option --learning-rate; settings are written as KEY=VALUE: " in said
    assert "learning.learning_rate, sft.learning_rate" in said
    assert "train.steps" in shell("train", "demo", "--train.steps=5", code=2).err
    assert "No such option" in shell("train", "demo", "--nonsense", code=2).err

"""Packages of a user's own, one with parts and one a wing, are installed beside turnwise, and one
recipe trains with both."""

import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fakes import save_small_model

PACKAGES = (Path(__file__).with_name("own_package"), Path(__file__).parents[1] / "examples/wing")
RECIPE = """
name = "own"
threads = 1
engine = { name = "counting", options = { greeting = "turns" }, max_sequences = 8 }
model = { name = "model" }
environment = { name = "letters" }
scaffold = { name = "brief", options = { opening = "Go." } }
algorithm.name = "grpo"
algorithm.estimator = "median"
algorithm.scale = 2
algorithm.objective = "quadratic"
algorithm.group_filter = "mine.py:f"
rollout = { max_turns = 1, max_turn_tokens = 6, max_tokens = 64 }
train = { steps = 3, tasks_per_step = 2, group_size = 3, checkpoint_every = 1 }
evaluation = { tasks = 4 }
hint = { text = "Stay calm." }
"""
FILTER = """
def f(rewards):
    return [True] * len(rewards)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment that has the packages, and sees this one's."""
    for needed in ("pip", "setuptools"):
        if find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed: no package can be built here")
    folder = tmp_path_factory.mktemp("fresh")
    made = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    interpreter = made / "bin" / "python"
    libraries = sysconfig.get_path("purelib", vars={"base": str(made), "platbase": str(made)})
    lines = [f"import site; site.addsitedir({place!r})" for place in site.getsitepackages()]
    (Path(libraries) / "test_environment.pth").write_text("\n".join(lines))
    for package in PACKAGES:
        shutil.copytree(package, folder / package.name)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", interpreter, "install", "--quiet"),
            *("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"),
            *(folder / package.name for package in PACKAGES),
        ],
        check=True,
    )
    return interpreter


def turnwise(
    python: Path, folder: Path, *words: str | Path, code: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [python, "-m", "turnwise", *words],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.long
def test_a_package_of_ones_own_trains_resumes_and_evaluates(python: Path, tmp_path: Path) -> None:
    save_small_model(tmp_path / "model")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    (tmp_path / "mine.py").write_text(FILTER)
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    elsewhere.mkdir()
    failed = turnwise(
        *(python, tmp_path, "train", "recipe.toml", "--run", run), code=3, OWN_CALLS="3"
    )
    assert "the machine is switched off" in failed.stderr
    assert len((run / "metrics.jsonl").read_text().splitlines()) < 3
    turnwise(python, elsewhere, "train", "--resume", run)
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 3
    told = turnwise(python, elsewhere, "hints", run).stdout
    assert told == "4 of 4 episodes were told the hint\n"
    assert (elsewhere / "turns.txt").read_text().startswith("turns ")
    evaluated = turnwise(python, elsewhere, "evaluate", run, "--json")
    assert json.loads(evaluated.stdout)["n"] == 4
    words = ("engine=openai", "engine.url=http://h/v1", "engine.model=m")
    refused = turnwise(python, elsewhere, "evaluate", run, *words, code=2)
    assert "hint needs a policy whose tokens are sampled here, and engine.name" in refused.stderr


@pytest.mark.slow
def test_parts_of_packages_are_listed_and_described(python: Path, tmp_path: Path) -> None:
    listed = json.loads(turnwise(python, tmp_path, "list", "--json").stdout)
    assert listed["engines"]["counting"] == "turnwise_own:Counting of turnwise-own"
    assert "search" in listed["environments"]
    printed = turnwise(python, tmp_path, "algorithms", "median").stdout
    assert "estimator" in printed
    assert "Less the median of" in printed
    assert "scale=1" in printed

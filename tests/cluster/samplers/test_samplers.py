"""Samplers sample what the process of the run would have sampled, whatever becomes of them.

They are the real ones, as tasks of this process. Not here: processes (`test_processes.py`).
"""

import asyncio
from pathlib import Path

import pytest

from tests.cluster.samplers.runs import (
    Broken,
    Dying,
    Each,
    Full,
    Growing,
    Harassed,
    Kept,
    Liar,
    Nowhere,
    Passing,
    Stuck,
    sampled_by,
)
from tests.cluster.workers.fleet import Fleet
from tests.cluster.workers.test_workers import TABLES, same_run, timing
from tests.small_runs import train, write_recipe
from turnwise.cluster.hiring import Hired, hired
from turnwise.cluster.samplers.lane import lane_of
from turnwise.commands.failures import first_error
from turnwise.config import load_recipe
from turnwise.errors import ConfigError, RunStoppedError
from turnwise.monitor.display import SilentDisplay
from turnwise.storage.run_folder import RunFolder
from turnwise.training.context import RunContext
from turnwise.training.prepare import prepare
from turnwise.training.run import run as run_stages


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"), "Restorable", TABLES)


@pytest.fixture(scope="module")
def alone(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    """The run without samplers."""
    return train(recipe, RunFolder.new(tmp_path_factory.mktemp("alone") / "run"))


@pytest.fixture(scope="module")
def two(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    """The run with two samplers."""
    folder = RunFolder.new(tmp_path_factory.mktemp("two") / "run")
    return sampled_by(Harassed(), 2, recipe, folder)


LONG = pytest.mark.slow


@pytest.mark.long
@pytest.mark.parametrize(
    ("turns", "loads"),
    [
        ((), ()),
        pytest.param((3, 20, 21, 40), (), marks=LONG),
        pytest.param((), (2, 4), marks=LONG),
    ],
)
def test_one_sampler_changes_no_bit_of_a_run(
    recipe: Path,
    alone: RunContext,
    tmp_path: Path,
    turns: tuple[int, ...],
    loads: tuple[int, ...],
) -> None:
    """Dying in the middle of a turn, or when new weights come."""
    found = sampled_by(Harassed(turns, loads), 1, recipe, RunFolder.new(tmp_path / "run"))
    assert same_run(found, alone)
    assert timing(found)["samplers/present"] == 1
    assert timing(found)["samplers/lost"] == len(turns) + len(loads)


@LONG
@pytest.mark.parametrize("turns", [(), (3, 20, 21, 40)])
def test_two_samplers_repeat_a_run_bit_for_bit(
    recipe: Path, two: RunContext, tmp_path: Path, turns: tuple[int, ...]
) -> None:
    found = sampled_by(Harassed(turns), 2, recipe, RunFolder.new(tmp_path / "run"))
    assert same_run(found, two)
    assert timing(found)["samplers/lost"] == len(turns)


FREE = "engine.deterministic=false"


def outcomes(run: RunContext) -> dict[str, float]:
    """The sums of outcomes over all steps."""
    found: dict[str, float] = {}
    for line in run.folder.lines("metrics.jsonl"):
        for name in line:
            if name.startswith("outcome/"):
                found[name] = found.get(name, 0.0) + line[name]
    return found


@pytest.mark.long
@pytest.mark.parametrize("turns", [pytest.param((), marks=LONG), (3, 15, 30)])
def test_free_samplers_lose_no_episode(
    recipe: Path, tmp_path: Path, turns: tuple[int, ...]
) -> None:
    given = FREE, "train.max_staleness=1", "evaluation.tasks=0", "train.steps=3"
    found = sampled_by(Harassed(turns), 2, recipe, RunFolder.new(tmp_path / "run"), *given)
    assert not {name for name in outcomes(found) if "infrastructure" in name}
    last = timing(found)
    assert last["samplers/lost"] == len(turns)
    assert (last["samplers/turns_sampled_again"] > 0) is bool(turns)


@pytest.mark.long
def test_a_sampler_takes_part_when_there_is_room_for_it(recipe: Path, tmp_path: Path) -> None:
    """It has the newest weights, and is compared with the model, before it has a turn."""
    given = FREE, "evaluation.tasks=0", "train.steps=3"
    found = sampled_by(Growing(), 2, recipe, RunFolder.new(tmp_path / "run"), *given)
    lines = list(found.folder.lines("timing.jsonl"))
    assert [lines[0]["samplers/present"], lines[0]["samplers/joined"]] == [1, 0]
    assert [timing(found)[f"samplers/{name}"] for name in ("present", "joined", "lost")] == [
        2,
        1,
        0,
    ]


@pytest.mark.long
def test_a_sampler_without_room_is_named_where_none_is_there(recipe: Path, tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    with pytest.raises(
        RunStoppedError, match=r"sampler 0 .* no node had room for it within 0\.1 s"
    ):
        sampled_by(Nowhere(), 1, recipe, folder, "cluster.start_seconds=0.1")


def test_a_bug_of_a_sampler_ends_the_run(recipe: Path, tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as why:
        sampled_by(Each(Broken), 1, recipe, RunFolder.new(tmp_path / "run"))
    assert str(first_error(why.value)) == "no such page"


@LONG
def test_adapters_alone_are_sent(recipe: Path, tmp_path: Path) -> None:
    given = "model.lora_rank=2", "train.steps=1"
    ours = train(recipe, RunFolder.new(tmp_path / "a"), *given)
    theirs = sampled_by(Each(Kept), 1, recipe, RunFolder.new(tmp_path / "b"), *given)
    assert same_run(ours, theirs)
    assert Kept.names
    assert all(".lora_" in name for name in Kept.names)


@pytest.mark.long
@pytest.mark.parametrize("kinds", [pytest.param((Liar,), marks=LONG), (Passing, Liar)])
def test_a_sampler_that_keeps_old_weights_is_found_at_the_first_update(
    recipe: Path, tmp_path: Path, kinds: tuple[type[Passing], ...]
) -> None:
    folder = RunFolder.new(tmp_path / "run")
    with pytest.raises(
        RunStoppedError, match=r"sampler \d \(process .*(took nothing|differ)"
    ) as why:
        sampled_by(Each(*kinds), len(kinds), recipe, folder)
    assert "\n" not in str(why.value)
    assert not list(folder.lines("metrics.jsonl"))[1:]


@pytest.mark.slow
def test_a_sampler_that_takes_no_weights_is_replaced(recipe: Path, tmp_path: Path) -> None:
    given = "cluster.start_seconds=15", "evaluation.tasks=0", "train.steps=1"
    fleet = Each(Stuck, Passing)
    found = sampled_by(fleet, 1, recipe, RunFolder.new(tmp_path / "run"), *given)
    assert fleet.starts == 2
    assert timing(found)["samplers/present"] == 1


@LONG
def test_a_sampler_that_dies_with_every_turn_ends_the_run(recipe: Path, tmp_path: Path) -> None:
    fleet = Harassed(range(1, 1000))
    with pytest.raises(ExceptionGroup) as why:
        sampled_by(fleet, 1, recipe, RunFolder.new(tmp_path / "run"))
    assert str(first_error(why.value)) == "sampler 0 could not be started 3 times: killed"
    assert fleet.starts == 4  # the first one has sampled what is compared before a run


@LONG
def test_a_bug_in_place_of_a_lost_sampler_reaches_the_turns_that_wait(
    recipe: Path, tmp_path: Path
) -> None:
    """They do not wait for the deadline of a turn, which is that of a hanging engine."""
    loaded, folder = load_recipe(str(recipe), ["cluster.samplers=1"]), RunFolder.new(tmp_path / "a")
    context = prepare(loaded, folder, SilentDisplay(), Hired(samplers=Each(Dying, Full)))
    with pytest.raises(ExceptionGroup) as why:
        asyncio.run(asyncio.wait_for(run_stages(context), 300))
    assert str(first_error(why.value)) == "out of memory"


def test_a_sampler_that_does_not_start_is_given_up(recipe: Path, tmp_path: Path) -> None:
    async def never(host: str, port: int, secret: bytes) -> None:
        await asyncio.sleep(60)

    message = "sampler 0 could not be started 3 times: .* within cluster.start_seconds = 0.05"
    folder = RunFolder.new(tmp_path / "run")
    with pytest.raises(RunStoppedError, match=message):
        sampled_by(Fleet(never), 1, recipe, folder, "cluster.start_seconds=0.05")


def test_episodes_are_dealt_out_in_turn() -> None:
    assert [lane_of(f"{n:08d}-3", 3) for n in range(6)] == [0, 1, 2, 0, 1, 2]
    assert lane_of("00000004-0/2", 3) == lane_of("00000004-0", 3)
    assert {lane_of(f"judge/{n}", 2) for n in range(20)} == {0, 1}


def test_more_samplers_than_cores_are_refused(recipe: Path) -> None:
    loaded = load_recipe(str(recipe), ["cluster.samplers=999", "engine.max_sequences=999"])
    message = r"cluster.samplers is 999, and this machine has \d+ cores: lower it, or"
    with pytest.raises(ConfigError, match=message), hired(loaded):
        pass

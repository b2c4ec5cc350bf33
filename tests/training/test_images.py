"""Runs in which the policy is shown images: from cold start to report, resumed, refused; and one
that learns what only images say."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from rich.console import Console

from turnwise.commands.terminal import choose_rows, show_rows
from turnwise.config import Recipe, load_recipe
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.environments.base import Environment, Split
from turnwise.errors import ConfigError, RunStoppedError
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows
from turnwise.tokens import Source
from turnwise.tools.tool import Tool, tool
from turnwise.training.context import RunContext
from turnwise.types import Action, Observation, Step, Task, ToolCall, Trajectory, Verdict

pytest.importorskip("PIL", reason="turnwise[vision] is not installed")
from tests.small_runs import assert_same, interrupted, prepared, resume, train, write_recipe
from tests.vision_models import image, save_vision_model


class Doors(Environment):
    """Two doors, of which an image shows the dark one; a look shows it again. Nothing but the
    image says which is right."""

    shows_images = True

    def tasks(self, split: Split) -> Sequence[Task]:
        shades = range(4) if split == "train" else range(4, 6)
        return [
            Task(f"{side}{shade}", "?", {"answers": [side]}, {"side": side, "shade": 10 * shade})
            for side in "lr"
            for shade in shades
        ]

    async def reset(self, task: Task, seed: int) -> Observation:
        greys = (task.data["shade"], 255 - task.data["shade"])
        self._png = image(*(greys if task.data["side"] == "l" else greys[::-1]))
        return Observation(task.prompt, Source.USER, (self._png,))

    @tool
    def look(self, where: str) -> str:
        """Look again."""
        return where

    async def step(self, action: Action) -> Step:
        step = await super().step(action)
        if step.observation is None:
            return step
        return Step(Observation(step.observation.content, images=(self._png,)), step.results)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        letters = sum(map(str.isalpha, trajectory.written)) / max(len(trajectory.written), 1)
        right = trajectory.answer in trajectory.task.secret["answers"]
        return Verdict(float(right) + 0.1 * letters, right)

    def oracle(self, task: Task) -> Sequence[Action]:
        look = Action("", calls=(ToolCall("look", {"where": "a"}),))
        return [look, Action("", answer=task.secret["answers"][0])]


class Blind(EmbeddedEngine):
    """An engine for words alone."""

    takes_images = False


class Torn(Doors):
    """Doors whose second image is none."""

    async def step(self, action: Action) -> Step:
        self._png = self._png[:40]
        return await super().step(action)


TABLES = """
seed = 5
model.device = "cpu"
rollout = { max_turns = 3, max_turn_tokens = 24, max_tokens = 160 }
sft = { steps = 2, batch_size = 4, demonstrations.count = 8 }
train = { steps = 2, tasks_per_step = 2, group_size = 4, checkpoint_every = 1 }
evaluation = { tasks = 2 }
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: save_vision_model(folder / name, name) for name in ("llava", "qwen2_5_vl")}


def recipe(folder: Path, model: Path, *overrides: str) -> Recipe:
    path = write_recipe(folder, f"{__file__}:Doors", TABLES, model)
    told = ("scaffold.options.instructions=Look.", "sft.demonstrations.behaviours.faithful=1")
    return load_recipe(str(path), [*told, *overrides])


def weights(context: RunContext) -> dict[str, torch.Tensor]:
    return {name: w.detach().clone() for name, w in context.components.model.named_parameters()}


@pytest.mark.long
@pytest.mark.parametrize("family", [pytest.param("llava", marks=pytest.mark.slow), "qwen2_5_vl"])
def test_a_run_from_cold_start_to_report_and_resumed(
    tmp_path: Path, models: dict[str, Path], family: str
) -> None:
    chosen = recipe(tmp_path, models[family])
    begun = prepared(chosen, RunFolder.new(tmp_path / "other"))
    before = weights(begun)
    folder = RunFolder.new(tmp_path / "run")
    context = train(chosen, folder)
    moved = {name for name, after in weights(context).items() if not after.equal(before[name])}
    assert moved
    assert all("language_model" in name or "lm_head" in name for name in moved)
    for line in folder.lines("metrics.jsonl"):
        assert line["policy/logprob_gap"] < 1e-4
        assert line["policy/gradient_norm"] > 0
        assert line["policy/skipped_updates"] == 0
    rows = read_rows(tmp_path / "run" / "trajectories" / "demonstrations.parquet")
    token = context.components.model.config.image_token_id
    for row in rows:
        assert [shown["file"] for shown in row["images"]] == [row["images"][0]["file"]] * 2
        for shown, source in zip(row["images"], (Source.USER, Source.TOOL), strict=True):
            place = slice(shown["start"], shown["start"] + shown["length"])
            assert row["ids"][place].count(token) >= 4
            assert set(row["source"][place]) == {source}
    pngs = {file.name for file in (tmp_path / "run" / "images").iterdir()}
    assert pngs >= {shown["file"] for row in rows for shown in row["images"]}
    console = Console(record=True, width=300)
    show_rows(console, tmp_path / "run", *reversed(choose_rows(tmp_path / "run", None, None, 1)))
    told = console.export_text()
    assert "[image images/" in told
    assert "<image>" not in told
    resumed = resume(interrupted(folder, tmp_path / "stopped", "step-000002")).folder
    assert_same(folder, resumed, "step-000002")
    saved = resumed.path / "checkpoints" / "step-000002"
    assert (saved / "preprocessor_config.json").is_file()


@pytest.mark.slow
def test_adapters_are_in_the_decoder_alone(tmp_path: Path, models: dict[str, Path]) -> None:
    pytest.importorskip("peft")
    chosen = recipe(tmp_path, models["llava"], "model.lora_rank=2")
    context = train(chosen, RunFolder.new(tmp_path / "run"))
    adapted = [
        n for n, weight in context.components.model.named_parameters() if weight.requires_grad
    ]
    assert adapted
    assert all("language_model" in name and "lora" in name for name in adapted)


OVERRIDES = [
    ["algorithm.name=ppo"],
    ["rollout.context=drop", "rollout.max_tokens=120", "learning.mask_observations=false"],
    ["algorithm.name=ppo", "algorithm.critic.kind=head", "algorithm.critic.body_coefficient=0.1"],
    ["algorithm.kl_coefficient=0.1", "algorithm.observation_coefficient=1"],
    ["train.max_staleness=1", "engine.deterministic=false"],
    ["model.gradient_checkpointing=true", "learning.compute_dtype=bfloat16"],
]
PAIRS = ["preferences.steps=1", "preferences.pairs=4", "train.steps=1"]


@pytest.mark.long
@pytest.mark.parametrize(
    "overrides",
    [
        *OVERRIDES[:2],
        *(pytest.param(rest, marks=pytest.mark.slow) for rest in OVERRIDES[2:]),
        pytest.param(
            ["algorithm.name=otb"], marks=[pytest.mark.slow, pytest.mark.wing("algorithms")]
        ),
        pytest.param(PAIRS, marks=[pytest.mark.slow, pytest.mark.wing("judges")]),
    ],
    ids=" ".join,
)
def test_what_else_images_pass_through(
    tmp_path: Path, models: dict[str, Path], overrides: list[str]
) -> None:
    chosen = recipe(tmp_path, models["qwen2_5_vl"], "evaluation.tasks=0", *overrides)
    folder = RunFolder.new(tmp_path / "run")
    train(chosen, folder)
    for line in folder.lines("metrics.jsonl"):
        assert line["policy/skipped_updates"] == 0
        exact = not (chosen.train.max_staleness or chosen.learning.autocast)
        assert line["policy/logprob_gap"] < (
            1e-4 if exact else 0.5
        )  # else rounded, or of old weights


@pytest.mark.long
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        pytest.param(
            ["scaffold.name=native", "scaffold.options={}"],
            "choose tags, react or code",
            marks=pytest.mark.wing("environments"),
        ),
        (["model.name=tiny"], r"model tiny \(qwen3\) takes words alone: name one of the families"),
        ([f"engine={__file__}:Blind"], "set engine.name=embedded or vllm"),
    ],
)
def test_what_has_no_place_for_images(
    tmp_path: Path, models: dict[str, Path], overrides: list[str], message: str
) -> None:
    model = shutil.copytree(models["llava"], tmp_path / "model")
    (model / "chat_template.jinja").write_text("{{ messages }}")  # or native has no template
    chosen = recipe(tmp_path, model, *overrides)
    with pytest.raises(ConfigError, match=message) as caught:
        prepared(chosen, RunFolder.new(tmp_path / "run"))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_an_environment_whose_images_are_broken_is_infrastructure(
    tmp_path: Path, models: dict[str, Path]
) -> None:
    chosen = recipe(tmp_path, models["llava"], f"environment.name={Path(__file__)}:Torn")
    with pytest.raises(RunStoppedError, match="an image cannot be read"):
        train(chosen, RunFolder.new(tmp_path / "run"))


class DarkSide(Doors):
    """Which half of the image is darker; greys of training are none of those held out."""

    def tasks(self, split: Split) -> Sequence[Task]:
        greys = range(0 if split == "train" else 1, 120, 2)
        return [
            Task(f"{side}{grey}", "?", {"answers": [side]}, {"side": side, "shade": grey})
            for grey in greys
            for side in "lr"
        ]

    def tools(self) -> list[Tool]:
        return []

    async def verify(self, trajectory: Trajectory) -> Verdict:
        right = trajectory.answer in trajectory.task.secret["answers"]
        return Verdict(float(right), right)

    def oracle(self, task: Task) -> Sequence[Action]:
        return [Action("", answer=task.secret["answers"][0])]


LEARNING = """
seed = 5
model.device = "cpu"
rollout = { max_turns = 1, max_turn_tokens = 8, max_tokens = 48 }
sft.steps = 60
sft.batch_size = 32
sft.learning_rate = 3e-3
sft.demonstrations = { count = 256, behaviours = { astray = 1 } }
learning = { learning_rate = 2e-3 }
train = { steps = 60, tasks_per_step = 8, group_size = 8, checkpoint_every = 100 }
evaluation = { tasks = 40 }
"""


@pytest.mark.slow
def test_a_policy_that_guesses_learns_to_look(tmp_path: Path) -> None:
    """A random model, whose demonstrations answer other tasks than they are shown."""
    model = save_vision_model(tmp_path / "model", seed=1)
    path = write_recipe(tmp_path, f"{__file__}:DarkSide", LEARNING, model)
    folder = train(path, RunFolder.new(tmp_path / "run")).folder
    before, after = folder.evaluation("cold_start"), folder.evaluation("trained")
    assert before["success"] < 0.7
    assert after["success"] > 0.9

"""A random vision-language model learns by RL what only images say."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from turnwise.environments.base import Environment, EnvironmentSpec, Split
from turnwise.storage.run_folder import RunFolder
from turnwise.tokens import Source
from turnwise.types import Action, Observation, Task, Trajectory, Verdict

pytest.importorskip("PIL", reason="turnwise[vision] is not installed")
from tests import small_runs
from tests.vision_models import image, save_vision_model

TABLES = """
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


class DarkSide(Environment):
    """Which half of the image is darker; greys of training are none of those held out."""

    shows_images = True

    @property
    def spec(self) -> EnvironmentSpec:
        return EnvironmentSpec("dark_side", "1", "0" * 64)

    def tasks(self, split: Split) -> Sequence[Task]:
        greys = range(0 if split == "train" else 1, 120, 2)
        return [
            Task(f"{side}{grey}", "?", {"answer": side}, {"side": side, "grey": grey})
            for grey in greys
            for side in "lr"
        ]

    async def reset(self, task: Task, seed: int) -> Observation:
        greys = [task.data["grey"], 255 - task.data["grey"]]
        png = image(*(greys if task.data["side"] == "l" else greys[::-1]))
        return Observation(task.prompt, Source.USER, (png,))

    async def verify(self, trajectory: Trajectory) -> Verdict:
        right = trajectory.answer == trajectory.task.secret["answer"]
        return Verdict(float(right), right)

    def oracle(self, task: Task) -> Sequence[Action]:
        return [Action("", answer=task.secret["answer"])]


@pytest.mark.slow
def test_a_policy_that_guesses_learns_to_look(tmp_path: Path) -> None:
    """Its demonstrations answer other tasks than they are shown."""
    model = save_vision_model(tmp_path / "model", seed=1)
    path = small_runs.write_recipe(tmp_path, f"{__file__}:DarkSide", TABLES, model)
    folder = RunFolder.new(tmp_path / "run")
    small_runs.train(path, folder)
    before, after = folder.evaluation("cold_start"), folder.evaluation("trained")
    assert before["success"] < 0.7
    assert after["success"] > 0.9

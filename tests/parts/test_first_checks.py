"""What is wrong with a recipe is said before a model library is imported."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.processes import run_python
from turnwise.config import ModelConfig
from turnwise.errors import DataError
from turnwise.models.places import check_model
from turnwise.wings import wings

ENVIRONMENT = """
from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.rewards.parts import RewardPart
from turnwise.types import Task, Verdict

class Own(Environment):
    facts = EnvironmentSpec("own", "1", parts={"tidy": RewardPart(0, 1, "tidy")})
    splits = {"train": 2, "heldout": 3}

    def tasks(self, split):
        return [Task(f"{split}{n}", f"{split} {n}?") for n in range(self.splits[split])]

    def verify(self, trajectory):
        return Verdict(0.0, False)

class Untaught(Own):
    splits = {"train": 0, "heldout": 3}

class Unheld(Own):
    splits = {"train": 2, "heldout": 0}

class Bare(Own):
    def tasks(self, split):
        return [{"id": "one"}]

def run(task, model):
    return None

class Known(Own):
    def tasks(self, split):
        return super().tasks("train")
"""
RECIPE = """
name = "own"
model = {{ name = "tiny" }}
environment = {{ name = "{file}:Own" }}
scaffold = {{ name = "tags" }}
sft = {{ steps = 0 }}
evaluation = {{ tasks = 2, sft = false }}
"""
MISTAKES = {
    "environment.name={file}:Untaught": "has no train tasks",
    "environment.name={file}:Unheld": "has no heldout tasks",
    "environment.name={file}:Bare": "Bare.tasks: number 0 is a dict",
    "environment.name={file}:Known": "its held-out tasks are training tasks",
    "environment.name={file}:Nobody": "Nobody",
    "environment.name=serch": "unknown environment",
    "scaffold.name=tag": "unknown scaffold",
    "scaffold.options.x=1": "scaffold.options of 'tags'",
    "engine.name=x": "unknown engine",
    "sft.steps=1 sft.demonstrations.behaviours.faithful=1": "needs the environment's oracle",
    "sft.steps=1 sft.demonstrations.file=/nowhere.jsonl": "/nowhere.jsonl cannot be read",
    "sft.steps=1 sft.demonstrations.file={file}": "line 2: broken JSON",
    "sft.steps=1 sft.demonstrations.behaviours.idle=1": "unknown behaviour 'idle'",
    "reward.parts.neat.weight=1": "neat",
    "evaluation.best_of=neat evaluation.episodes_per_task=2": "unknown evaluation.best_of 'neat'",
    "evaluation.during_rl={{every=1,tasks=2}}": "have no task in common, and there are 3",
    "rollout.max_tokens=5000": "rollout.max_tokens is 5000, but the model's context is 1024",
    "model.name=/nowhere": "model /nowhere: there is no such folder",
    "evaluation.base=/nowhere": "model /nowhere: there is no such folder",
}
OF_WINGS = {
    "algorithms": {"algorithm.name=tree_grpo": "no snapshot() and restore()"},
    "environments": {"scaffold.name=native": "has no chat template"},
    "gateway": {
        "agent={file}:nobody": "unknown function 'nobody'",
        'agent={{command=["nowhere"]}}': "there is no program 'nowhere'",
        "agent={file}:run agent.roles.a.policy=trained "
        'agent.roles.b.policy={{kind="frozen",checkpoint="/nowhere"}}': (
            "agent.roles.b.policy.checkpoint /nowhere: there is no such folder"
        ),
    },
    "vllm": {"engine=vllm engine.servers.python=/nowhere": "/nowhere cannot be run"},
}
SCRIPT = """
import json, sys
from pathlib import Path
from turnwise.config import load_recipe
from turnwise.errors import UserError
from turnwise.monitor.display import SilentDisplay
from turnwise.storage.run_folder import RunFolder
from turnwise.evaluation.policies import evaluate_recipe
from turnwise.training.start import prepared

folder, *mistakes = sys.argv[1:]
for words in [*mistakes, "evaluate"]:
    try:
        recipe = load_recipe(f"{folder}/own.toml", words.split() if words != "evaluate" else [])
        if words == "evaluate":
            own = f"environment.name={folder}/own.py:Unheld"
            evaluate_recipe(load_recipe(f"{folder}/own.toml", [own]), None, SilentDisplay())
        with prepared(recipe, RunFolder.new(Path(folder) / "run"), SilentDisplay()):
            said = "nothing"
    except UserError as error:
        said = str(error)
    loaded = [name for name in ("torch", "transformers") if name in sys.modules]
    print(json.dumps([words, said, loaded]), flush=True)
"""


@pytest.mark.long
def test_nothing_is_loaded_before_what_can_be_known_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(ENVIRONMENT)
    (tmp_path / "own.toml").write_text(RECIPE.format(file=file))
    installed = [OF_WINGS[name] for name in OF_WINGS.keys() & wings().usable.keys()]
    mistakes = [MISTAKES, *installed]
    wanted = {words.format(file=file): said for each in mistakes for words, said in each.items()}
    wanted["evaluate"] = "there is nothing to evaluate"
    told = run_python(SCRIPT, tmp_path, *list(wanted)[:-1]).stdout
    for line, (words, said) in zip(told.splitlines(), wanted.items(), strict=True):
        found = json.loads(line)
        assert found[0] == words
        assert said in found[1]
        assert "\n" not in found[1]
        assert found[2] == [], words
    assert not (tmp_path / "run").exists()


class Hub(BaseHTTPRequestHandler):
    asked = 0

    def do_HEAD(self) -> None:
        Hub.asked += 1
        self.send_response(404 if "nobody" in self.path else 200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def hub() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_model_of_the_hub_is_asked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    Hub.asked = 0
    with hub() as place:
        monkeypatch.setenv("HF_ENDPOINT", place)
        check_model(ModelConfig(name="some/model"))
        with pytest.raises(DataError, match=r"nobody/model: .* has none of that name"):
            check_model(ModelConfig(name="nobody/model"))
    assert Hub.asked == 2
    with pytest.raises(DataError, match=r"some/model: .* cannot be reached .*: give a folder"):
        check_model(ModelConfig(name="some/model"))
    (tmp_path / "models--some--model").mkdir()
    check_model(ModelConfig(name="some/model"))


@pytest.mark.parametrize("text", ["{", "[]", '"a"', '{"text_config": 3}', "[" * 100_000, "\xff"])
def test_a_config_that_is_no_models_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").touch()
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=r"config.json is no model's \(.+\)"):
        check_model(ModelConfig(name=str(tmp_path)))

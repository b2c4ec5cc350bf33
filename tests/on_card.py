"""Whole runs on a card that is not there (`card.py`), beside the same runs on the processor.

`python -m tests.on_card FOLDER NAME…` writes what came out, by names, as JSON: it runs in a process
of its own, since a process that has such a device has it to its end.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import turnwise
from benchmarks.tiny_models import tiny_model as any_model
from tests import card
from tests.fakes import byte_tokenizer, save_small_mixture
from tests.forward.models_for_tests import tiny_model
from tests.small_runs import FAKES, interrupted, resume, train, write_recipe
from turnwise.commands.failures import first_error
from turnwise.config import load_recipe
from turnwise.engines.base import Sampling
from turnwise.parts.components import Components
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_rows
from turnwise.threads import configure_threads
from turnwise.types import Group

TABLES = """
engine.max_sequences = 4
rollout = { max_turns = 2, max_turn_tokens = 12, max_tokens = 96 }
learning.learning_rate = 1e-3
sft.steps = 0
sft.batch_size = 4
sft.checkpoint_every = 1
sft.demonstrations = { count = 4, behaviours = { faithful = 1, mistaken = 1 } }
train = { steps = 1, tasks_per_step = 2, group_size = 2, checkpoint_every = 1 }
evaluation.tasks = 0
"""
ROOT = Path(__file__).parents[1]
LONG = ("rollout.max_turn_tokens=24", "rollout.max_turns=3", "rollout.max_tokens=200")
CASES: dict[str, tuple[str, ...]] = {
    "written out": ("algorithm.kl_coefficient=0.1", "learning.updates_per_step=2"),
    "cold start": ("sft.steps=1", *LONG),
    "critic": ("algorithm.name=ppo", "rollout.top_k=5"),
    "adapters": ("model.lora_rank=2", "model.gradient_checkpointing=true"),
    "offloaded": ("learning.offload_optimizer=true", "learning.share_prefixes=true"),
    "bfloat16": ("learning.compute_dtype=bfloat16",),
    "experts": ("model.name={mixture}", "rollout.routing_replay=true"),
    "states": ("model.name={states}",),
    "windows": ("model.name={windows}",),
    "resumed": ("train.steps=2", "evaluation.tasks=2"),
    "preferences": (
        *("preferences.steps=2", "preferences.pairs=2", "preferences.batch_size=2"),
        *("rollout.top_p=0.9", "rollout.min_p=0.02", "learning.share_prefixes=true"),
    ),
    "reward model": (
        *(f"environment.name={FAKES}:Levels", "train.steps=2", "evaluation.tasks=2"),
        *('reward_model.data=["{episodes}"]', "reward_model.steps=2", "reward_model.batch_size=2"),
        *("reward_model.beside_policy=true", "reward.parts.reward_model=0.5"),
        *("evaluation.best_of=reward_model", "evaluation.episodes_per_task=2"),
    ),
    "agent": (
        f"agent={ROOT}/packages/turnwise-gateway/tests/asking_agent.py:run",
        *("rollout.max_tokens=200", "rollout.max_turns=3"),
    ),
    "images": (
        *("model.name={images}", f"environment.name={ROOT}/tests/training/test_images.py:Doors"),
        *("sft.steps=1", "rollout.max_turn_tokens=24", "rollout.max_tokens=160"),
    ),
}
"""What a case changes; `{mixture}` and the like are made when a case names them."""
FAULTS = {
    "arange": ("turnwise.forward.small_llama", "written out"),
    "host": ("turnwise.forward.cache", "written out"),
    "batch": ("turnwise.learning.batch", "written out"),
    "sampling": ("turnwise.engines.sampling", "critic"),
    "kept": ("turnwise.forward.token_scores", "critic"),
    "second model": ("turnwise.learning.signals.critic", "critic"),
    "general": ("turnwise.forward.routing", "experts"),
    "imitated": ("turnwise.learning.batch", "cold start"),
    "adapted": ("turnwise.learning.batch", "adapters"),
    "restored": ("turnwise.learning.optimizer", "resumed"),
    "judged": ("turnwise_judges.reward_model.model", "reward model"),
    "preferred": ("turnwise.learning.batch", "preferences"),
    "shown": ("turnwise.forward.images", "images"),
}
"""Modules whose tensors stay on the host, and the case in which that has to show."""


def main(folder: Path, *names: str) -> None:
    """Do the cases of these names, faults as `fault NAME`, and the count of waits as `waits`."""
    configure_threads(1)
    recipe = write_recipe(folder, "Letters", TABLES)
    found: dict[str, Any] = {}
    for name in names:
        if name == "waits":
            found[name] = waits(recipe)
        elif name.startswith("fault "):
            module, case = FAULTS[name.removeprefix("fault ")]
            with staying_on_the_host(module):
                found[name] = refused(partial(run, recipe, name, case, "card"))
        else:
            found[name] = compared(recipe, name)
    (folder / "found.json").write_text(json.dumps(found))


def run(recipe: Path, name: str, case: str, device: str) -> RunFolder:
    folder = RunFolder.new(recipe.parent / f"{name} on {device}")
    changes = [one.format_map(Made(recipe)) for one in CASES[case]]
    train(recipe, folder, *changes, f"model.device={device}")
    if case == "resumed":
        folder = interrupted(folder, recipe.parent / f"{name} again on {device}", "step-000002")
        resume(folder)
    return folder


class Made(dict[str, Path]):
    """What cases need beside the recipe, each made when it is asked for first."""

    def __init__(self, recipe: Path) -> None:
        super().__init__()
        self._recipe = recipe

    def __missing__(self, name: str) -> Path:
        place = self._recipe.parent / name
        if not place.exists():
            makers[name](self._recipe, place)
        return place


def save_episodes(recipe: Path, place: Path) -> None:
    levels = f"environment.name={FAKES}:Levels"
    train(recipe, RunFolder.new(place), levels, "train.steps=4", "model.device=cpu")


def save_with_states(recipe: Path, place: Path) -> None:
    """Convolutions whose states run along a text, beside attention."""
    del recipe
    model, tokenizer = any_model("lfm2"), byte_tokenizer()
    model.resize_token_embeddings(len(tokenizer))
    # A module that PyTorch moves to a device that is not one of its own loses its ties.
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)


def save_with_windows(recipe: Path, place: Path) -> None:
    del recipe
    tiny_model("gemma3").save_pretrained(place)
    byte_tokenizer().save_pretrained(place)


def save_images(recipe: Path, place: Path) -> None:
    del recipe
    from tests.vision_models import save_vision_model

    save_vision_model(place, "qwen2_5_vl")


makers: dict[str, Callable[[Path, Path], object]] = {
    "mixture": lambda recipe, place: save_small_mixture(place),
    "episodes": save_episodes,
    "images": save_images,
    "states": save_with_states,
    "windows": save_with_windows,
}


def compared(recipe: Path, name: str) -> dict[str, Any]:
    """The largest distance of a saved weight, and whether the same tokens were sampled."""
    here, there = (run(recipe, name, name, device) for device in ("cpu", "card"))
    distances = [
        float((weight.float() - others[key].float()).abs().max())
        for file in here.checkpoints.rglob("*.safetensors")
        for others in [load_file(there.checkpoints / file.relative_to(here.checkpoints))]
        for key, weight in load_file(file).items()
    ]
    ids = [
        [row["ids"] for file in one.trajectory_files() for row in read_rows(file)]
        for one in (here, there)
    ]
    return {"distance": max(distances), "same": ids[0] == ids[1], "episodes": len(ids[0])}


def refused(work: Callable[[], Any]) -> str:
    """The words of the error that a run ends with; empty where it does not."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - whatever it is called by the time it is told
        return str(first_error(error))
    return ""


@contextmanager
def staying_on_the_host(module: str) -> Iterator[None]:
    """Inside, tensors that a module makes for a device, or brings to one, stay on the host."""
    # PyTorch keeps the set of functions that make tensors from when it is first needed. With those
    # below in it, transformers leaves rotary frequencies as what was in memory.
    with torch.device("meta"):
        torch.zeros(1)
    made = {name: getattr(torch, name) for name in ("arange", "tensor", "zeros")}
    moved = torch.Tensor.to

    def at_home(make: Any) -> Any:
        def plain(*arguments: Any, **options: Any) -> Any:
            if sys._getframe(1).f_globals["__name__"] == module:
                options.pop("device", None)
            return make(*arguments, **options)

        return plain

    def stay(tensor: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        if sys._getframe(1).f_globals["__name__"] == module and tensor.device.type == "cpu":
            return tensor
        return moved(tensor, *arguments, **options)

    for name, make in made.items():
        setattr(torch, name, at_home(make))
    torch.Tensor.to = stay
    try:
        yield
    finally:
        torch.Tensor.to = moved
        for name, make in made.items():
            setattr(torch, name, make)


def waits(recipe: Path) -> dict[str, float]:
    """Waits for the card: of one step of decoding, and of one micro-batch."""
    loaded = load_recipe(str(recipe), ["model.device=card", "train.group_size=4"])
    components = turnwise.build(loaded)
    engine, prompt = components.engine, list(range(3, 20))

    async def sampled(tokens: int) -> int:
        engine.open(f"{tokens}")
        card.waits.clear()
        sampling = Sampling(max_tokens=tokens, seed=1)
        said = await engine.generate(prompt, sampling, session=f"{tokens}")
        engine.close(f"{tokens}")
        assert len(said.tokens) == tokens
        return card.waits.total()

    few, many = asyncio.run(sampled(4)), asyncio.run(sampled(20))
    groups = turnwise.sample_groups(components)
    (all_at_once, one), (in_parts, parts) = [
        updated(components, groups, tokens) for tokens in (100_000, 100)
    ]
    return {
        "decode": (many - few) / 16,
        "micro-batch": (in_parts - all_at_once) / (parts - one),
        "update": all_at_once,
    }


def updated(components: Components, groups: list[Group], tokens: int) -> tuple[int, int]:
    """Waits of an update in micro-batches of so many tokens, and the number of these."""
    recipe = components.recipe
    learning = recipe.learning.model_copy(update={"tokens_per_micro_batch": tokens})
    chosen = replace(components, recipe=recipe.model_copy(update={"learning": learning}))
    learner = turnwise.make_learner(chosen)
    credits = turnwise.estimate(chosen, learner, groups)
    backward, count = torch.autograd.backward, 0

    def counted(*arguments: Any, **options: Any) -> None:
        nonlocal count
        count += 1
        backward(*arguments, **options)

    torch.autograd.backward = counted
    card.waits.clear()
    learner.update(groups, credits)
    torch.autograd.backward = backward
    return card.waits.total(), count


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

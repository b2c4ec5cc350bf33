"""The facts that a reader must know to compare an evaluation's figures with others.

A result names its environment, tools, budgets, scaffold, sampling, verifier, and how failures are
dealt with: a number without them is not comparable with any other.
"""

import os
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.config import Recipe
from turnwise.environments.base import Environment
from turnwise.environments.splits import shared_tasks
from turnwise.evaluation.evaluate import best_constant_answer
from turnwise.threads import cpuinfo, physical_cores
from turnwise.types import Task

if TYPE_CHECKING:
    import torch

    from turnwise.parts.components import Components

PACKAGES = ("torch", "transformers")
OF_MODELS = {
    "judge": "a language model's judgement",
    "reward_model": "a learned model's number",
    "entropy": "the policy's own entropy",
    "self_certainty": "the policy's own certainty",
}
"""Parts that models measure, by their names."""


def statement(
    recipe: Recipe, environment: Environment, heldout: Sequence[Task], policy: str
) -> dict[str, str]:
    """List them by short names; `heldout` was played, by the weights that `policy` says."""
    from turnwise.models.load import device_of  # a model library, which comparisons do without

    spec = environment.spec
    return {
        "policy": policy,
        "environment": f"{spec.name} {spec.version}, data {spec.data_hash[:12] or 'unhashed'}; "
        f"success of simple policies: {_simple(environment, heldout)}",
        "tasks": _tasks(recipe, environment, heldout),
        "verifier": _verifier(recipe, environment),
        "tools and budget": _budget(recipe, environment),
        "scaffold": _scaffold(recipe),
        "sampling": _sampling(recipe),
        "failure recovery": "nothing is retried; a malformed action gets a correction and counts "
        "against the budget; infrastructure and grader failures are ungraded and counted; "
        f"more than {recipe.rollout.max_ungraded_share:.0%} of them stop the run",
        "randomness": f"seed {recipe.seed} of training, one run: how far another seed ends from it "
        f"is not in the intervals; evaluation.seed {recipe.evaluation.seed} chose the tasks",
        "machine": f"{machine(device_of(recipe.model))}; threads: {recipe.threads}",
        "versions": versions(),
    }


def machine(device: "torch.device") -> str:
    """Processor, cores, memory, and the accelerator that a device is."""
    import torch

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else "no GPU"
    name = next(iter(cpuinfo("model name")), platform.machine())
    return f"{name}, {os.cpu_count()} cores, {memory:.0f} GiB, {gpu}"


def versions() -> str:
    """Say which turnwise with its commit, Python, and packages that figures depend on."""
    own = f"turnwise {version('turnwise')} (commit {commit()}), Python {platform.python_version()}"
    return ", ".join([own, *(f"{name} {version(name)}" for name in PACKAGES)])


def commit() -> str:
    """The source's git commit, `+changes` when files differ; "unknown" where git has none."""
    folder = Path(__file__).parent
    try:
        # Else an installed copy inside somebody's repository would be given its commit.
        _git(folder, "ls-files", "--error-unmatch", Path(__file__).name)
        head = _git(folder, "rev-parse", "--short=12", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}+changes" if changed else head


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _simple(environment: Environment, heldout: Sequence[Task]) -> str:
    """Success of policies without a model: as the environment states it, and a constant's."""
    scores, constant = dict(environment.spec.reference_scores), best_constant_answer(heldout)
    scores |= {} if constant is None else {"best constant answer": constant}
    return ", ".join(f"{name} {share:.1%}" for name, share in scores.items()) or "none stated"


def _tasks(recipe: Recipe, environment: Environment, heldout: Sequence[Task]) -> str:
    train, every = environment.tasks("train"), len(environment.tasks("heldout"))
    shared = shared_tasks(train, heldout)
    why = " (the environment has no others)" if environment.same_splits else ""
    return (
        f"{len(heldout)} of {every} held-out ones, {shared} of them are among the {len(train)} "
        f"training tasks{why}, by prompt, data and secret; whether {recipe.model.name} was "
        "pretrained on them is not known here"
    )


def _verifier(recipe: Recipe, environment: Environment) -> str:
    known = "; ".join(environment.weaknesses) or "none stated"
    used = set() if recipe.reward is None else recipe.reward.used
    reward = "is its own" if recipe.reward is None else "is put together by the recipe"
    for name in sorted(used & OF_MODELS.keys()):
        reward += f", with {OF_MODELS[name]} in it"
    spec = environment.spec
    return (
        f"success is what verify() of {spec.name} {spec.version} says of the whole trajectory, and "
        f"the reward {reward}; known weaknesses: {known}"
    )


def _budget(recipe: Recipe, environment: Environment) -> str:
    limits = recipe.rollout
    tools = ", ".join(tool.name for tool in environment.tools()) or "none"
    return (
        f"{tools}; at most {limits.max_tool_calls} calls, {limits.max_turns} turns, "
        f"{limits.max_turn_tokens} tokens a turn, {limits.max_tokens} tokens in all, "
        f"{limits.max_seconds:g} s of the environment"
    )


def _scaffold(recipe: Recipe) -> str:
    options = ", ".join(f"{name} = {value!r}" for name, value in recipe.scaffold.options.items())
    return f"{recipe.scaffold.name} ({options or 'no options'}); context: {recipe.rollout.context}"


def _sampling(recipe: Recipe) -> str:
    limits, config = recipe.rollout, recipe.evaluation
    cuts = (("top_k", limits.top_k, 0), ("top_p", limits.top_p, 1), ("min_p", limits.min_p, 0))
    used = "".join(f", {name} {value:g}" for name, value, off in cuts if value != off)
    count = config.episodes_per_task
    several = "one episode a task; 95% intervals are Wilson's"
    if count > 1:
        several = f"{count} episodes a task; 95% intervals are clustered by task"
    return f"engine {recipe.engine.name}, temperature {config.temperature:g}{used}, {several}"


def weights_text(weights: Path | None) -> str:
    """Name the checkpoint of which weights are; None are the model's own."""
    return "weights as the recipe names them" if weights is None else f"weights of {weights}"


def computes_text(parts: "Components") -> str:
    """Say with how many threads, in which type, and why, a run computes."""
    recipe = parts.recipe
    cores = "thread" if recipe.threads == 1 else "threads"
    slow = " on fewer cores, which is slower" if recipe.threads > physical_cores() else ""
    chosen = f"{recipe.learning.compute_dtype} ({parts.why_compute_dtype})"
    return f"computing with {recipe.threads} {cores}{slow}, updates in {chosen}"


def model_text(parts: "Components") -> str:
    """Say a model's name, size and type."""
    config = parts.recipe.model
    size = sum(weight.numel() for weight in parts.model.parameters())
    adapters = f", adapters of rank {config.lora_rank} among them" if config.lora_rank else ""
    return f"{config.name}, {size:,} parameters{adapters}, {config.dtype}"

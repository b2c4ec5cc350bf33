"""The command that plans a run on GPUs: how to divide them, how fast it gets, what bounds it.

Not here: how plans are made (`cluster/planner`).
"""

from dataclasses import asdict, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from turnwise.commands.evaluating import AsJson, Overrides
from turnwise.commands.printing import console, print_json, print_line
from turnwise.config import load_recipe
from turnwise.errors import ConfigError

if TYPE_CHECKING:
    from turnwise.cluster.planner.plan import Ask, Plan
    from turnwise.cluster.planner.workload import Stated, Workload
    from turnwise.config import Recipe

KINDS = 1000
"""Episodes that are drawn of stated distributions."""


def plan(
    recipe: Annotated[str, typer.Argument(help="A recipe: a .toml file, or a name.")],
    overrides: Overrides = None,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs in all.")] = 8,
    gpu: Annotated[str, typer.Option(help="Their kind, such as h100.")] = "h100",
    from_run: Annotated[
        Path | None, typer.Option("--from", help="A run whose episodes are like those planned.")
    ] = None,
    turns: Annotated[
        float | None, typer.Option(min=1, help="Turns of an episode, mean, without --from.")
    ] = None,
    turn_tokens: Annotated[
        float | None, typer.Option(min=1, help="Tokens sampled in a turn, mean.")
    ] = None,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Tokens of the first prompt.")] = 500,
    observation_tokens: Annotated[
        float, typer.Option(min=0, help="Tokens that a tool returns, mean.")
    ] = 300.0,
    spread: Annotated[
        float, typer.Option(min=0, max=3, help="Spread of turns and tokens (of the logarithm).")
    ] = 0.5,
    tool_seconds: Annotated[
        float | None, typer.Option(min=0, help="Seconds of a tool call, mean.")
    ] = None,
    tool_spread: Annotated[
        float | None, typer.Option(min=0, max=3, help="Their spread (of the logarithm).")
    ] = None,
    tool_slots: Annotated[
        int | None, typer.Option(min=1, help="Tool calls at once, at most.")
    ] = None,
    max_staleness: Annotated[
        int, typer.Option(min=0, max=64, help="The largest train.max_staleness to consider.")
    ] = 2,
    success: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of successes, for their cost.")
    ] = None,
    gpu_hour: Annotated[float, typer.Option(help="Price of an hour of one GPU.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Plan a run on GPUs: how to divide them between learning and sampling, memory, steps per hour
    and cost, by simulation. Nothing is started."""
    from turnwise.cluster.planner.hardware import find_gpu
    from turnwise.cluster.planner.plan import Ask, best_plans
    from turnwise.cluster.planner.shapes import read_shape
    from turnwise.cluster.planner.workload import Stated

    if not 0 <= gpu_hour < inf:
        raise ConfigError(f"--gpu-hour is {gpu_hour:g}: give a price of 0 or more")
    found_gpu, loaded = find_gpu(gpu), load_recipe(recipe, overrides or [])
    limits, prices = loaded.rollout, loaded.evaluation.prices
    if from_run is not None and (turns is not None or turn_tokens is not None):
        raise ConfigError("--from says how long episodes are: leave out --turns, --turn-tokens")
    stated = Stated(
        prompt_tokens,
        turns or max(1.0, limits.max_turns / 2),
        turn_tokens or max(1.0, limits.max_turn_tokens / 2),
        observation_tokens,
        limits.max_turns,
        limits.max_turn_tokens,
        spread,
    )
    load = _episodes(loaded, from_run, stated)
    ask = Ask(
        shape=read_shape(loaded.model.name),
        workload=_with(load, tool_seconds, tool_spread, success),
        training=_training(loaded),
        gpu=found_gpu,
        gpus=gpus,
        most_staleness=max_staleness,
        under_way=loaded.engine.max_concurrent_episodes or float("inf"),
        tool_slots=tool_slots or float("inf"),
        gpu_hour=gpu_hour,
        tool_call=prices.tool_call if prices is not None else 0.0,
    )
    _print(ask, best_plans(ask), as_json, prices.currency if prices is not None else "$")


def _print(ask: "Ask", plans: "list[Plan]", as_json: bool, currency: str) -> None:
    if as_json:
        print_json({"assumptions": assumptions(ask), "plans": [described(one) for one in plans]})
        return
    console.print(plans_table(plans))
    for line in lines(ask, plans[0], currency):
        print_line(line)


def plans_table(plans: "list[Plan]") -> Table:
    """A row for each plan, the best one first; fits into 80 columns."""
    table = Table(title="GPUs", title_justify="left")
    for name in ("learn", "sample", "staleness", "steps/h", "s/step", "age", "GiB", "bound by"):
        table.add_column(name, justify="left" if name == "bound by" else "right")
    for one in plans:
        division, timing = one.division, one.timing
        table.add_row(
            str(division.learners),
            "the same" if division.colocated else str(division.samplers),
            str(division.staleness),
            f"{timing.steps_per_hour:.1f}",
            f"{timing.step:.1f}",
            f"{timing.age:.1f}",
            f"{one.learner.total / (1 << 30):.0f}",
            one.bound,
        )
    return table


def lines(ask: "Ask", best: "Plan", currency: str) -> list[str]:
    """The lines below the table: memory, what each part holds up, costs, assumptions."""
    gib, learner, sampler = float(1 << 30), best.learner, best.sampler
    gains = ", ".join(f"{part} {gain:.2f}x" for part, gain in best.gains.items())
    busy = ", ".join(f"{part} {share:.1%}" for part, share in best.busy.items())
    found = [
        f"Each learner, GiB of {ask.gpu.memory:g}: weights {learner.weights / gib:.1f}, gradients "
        f"{learner.gradients / gib:.1f}, optimizer {learner.optimizer / gib:.1f}, activations "
        f"{learner.activations / gib:.1f}, whole layers {learner.gathered / gib:.1f}, CUDA "
        f"{learner.other / gib:.1f}; of the processor's memory {learner.host / gib:.1f}.",
        f"Each sampler ({sampler.gpus} GPU{'s' * (sampler.gpus > 1)}): weights "
        f"{sampler.weights / gib:.1f}, KV cache {sampler.cache / gib:.1f} GiB on each GPU, for "
        f"{sampler.slots} sequences; {best.timing.under_way} episodes under way at most.",
        f"Times as fast if a part took no time: {gains}.",
        f"Share of the time that a part works: {busy}; {best.calls:.0f} tool calls at once.",
    ]
    if best.step_cost is not None:
        each = "" if best.success_cost is None else f", {currency}{best.success_cost:.3g} a success"
        found.append(f"Cost: {currency}{best.step_cost:.2f} a step{each}.")
    told = ", ".join(f"{name} {value}" for name, value in assumptions(ask).items())
    return [*found, f"Assumed: {told}."]


def assumptions(ask: "Ask") -> dict[str, Any]:
    """The numbers that a plan rests on."""
    load = ask.workload
    return {
        "model parameters": ask.shape.parameters,
        "episodes a step": load.episodes,
        "turns": round(load.turns, 1),
        "sampled tokens": round(load.sampled),
        "read tokens": round(load.read),
        "tool seconds": load.tools.mean,
        "tool spread": load.tools.spread,
        "MFU": ask.efficiency.training,
        "share of bandwidth": ask.efficiency.bandwidth,
    }


def described(one: "Plan") -> dict[str, Any]:
    """A plan as data, memory in bytes."""
    return {
        "division": asdict(one.division),
        "steps_per_hour": one.timing.steps_per_hour,
        "timing": asdict(one.timing),
        "learner_memory": asdict(one.learner) | {"total": one.learner.total},
        "sampler_memory": asdict(one.sampler) | {"total": one.sampler.total},
        "bound": one.bound,
        "gains": one.gains,
        "busy": one.busy,
        "tool_calls_at_once": one.calls,
        "step_cost": one.step_cost,
        "success_cost": one.success_cost,
    }


def _episodes(recipe: "Recipe", run: Path | None, stated: "Stated") -> "Workload":
    """The episodes of a run, or stated ones, as many as the recipe's steps have."""
    from turnwise.cluster.planner.measured import read_run
    from turnwise.cluster.planner.workload import ToolTimes, Workload

    count = recipe.train.tasks_per_step * recipe.train.group_size
    latency = recipe.environment.latency
    if run is None:
        load = Workload(count, stated.episodes(KINDS))
    else:
        load = replace(read_run(run).workload, episodes=count)
    if latency is None:
        return load
    return replace(load, tools=ToolTimes(latency.mean, latency.spread))


def _with(
    load: "Workload", seconds: float | None, spread: float | None, success: float | None
) -> "Workload":
    """The episodes with what is stated of tools and success in place of what was measured."""
    tools = load.tools
    if seconds is not None:
        tools = replace(tools, mean=seconds)
    if spread is not None:
        tools = replace(tools, spread=spread)
    return replace(load, tools=tools, success=load.success if success is None else success)


def _training(recipe: "Recipe") -> Any:
    from turnwise.algorithms.parts import Requirement
    from turnwise.algorithms.registry import make_algorithm
    from turnwise.cluster.planner.memory import Training

    algorithm = make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)
    return Training(
        bfloat16=recipe.model.dtype == "bfloat16",
        lora_rank=recipe.model.lora_rank,
        recompute=recipe.model.gradient_checkpointing,
        offload_activations=recipe.model.offload_activations,
        offload_optimizer=recipe.learning.offload_optimizer,
        replicas=recipe.cluster.replicas,
        micro_batch=recipe.learning.tokens_per_micro_batch,
        reference=algorithm.has_reference,
        critic=Requirement.CRITIC in algorithm.needs,
        passes=recipe.learning.epochs,
    )

"""Settings of different sections that cannot both be honoured: one sentence for each.

Not here: what stands in one section (a type or a validator there), and what depends on the
algorithm or on the parts of a run (`training/algorithm_checks.py`, `training/checks.py`).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from turnwise.config.agent import RemoteAgent
from turnwise.config.engine import (
    EmbeddedEngineConfig,
    OpenAIEngineConfig,
    RunningServers,
    VllmEngineConfig,
)
from turnwise.config.learning import ScriptedDemonstrations
from turnwise.config.run import BySuccess

if TYPE_CHECKING:
    from turnwise.config.recipe import Recipe


def contradictions(recipe: "Recipe") -> Iterator[str]:
    """Each contradiction of a recipe, as a sentence that says what to do."""
    yield from _of_asynchronous_sampling(recipe)
    yield from _of_engine(recipe)
    yield from _of_learning(recipe)
    yield from _of_routing_replay(recipe)
    yield from _of_demonstrations(recipe)
    yield from _of_evaluation(recipe)
    yield from _of_judge(recipe)
    yield from _of_reward_model(recipe)
    yield from _of_agent(recipe)
    yield from _of_samplers(recipe)
    yield from _of_colocation(recipe)
    yield from _of_workers(recipe)


def _of_samplers(recipe: "Recipe") -> Iterator[str]:
    """Engines that have no servers to be started."""
    if not recipe.cluster.samplers:
        return
    if isinstance(recipe.engine, VllmEngineConfig):
        yield from _of_servers_on_nodes(recipe, recipe.engine)
        return
    yield (
        f"cluster.samplers = {recipe.cluster.samplers} starts servers of vLLM on a cluster's "
        f"nodes, and engine.name is {recipe.engine.name!r}: set engine=vllm, or leave "
        "cluster.samplers out (cluster.learners and cluster.workers go with any engine)"
    )


def _of_servers_on_nodes(recipe: "Recipe", engine: VllmEngineConfig) -> Iterator[str]:
    """Settings of vLLM's servers that do not go with their being placed on a cluster."""
    servers, config = engine.servers, recipe.cluster
    there = f"cluster.samplers = {config.samplers} starts servers on the cluster's nodes"
    if isinstance(servers, RunningServers):
        yield f"{there}, and engine.servers.urls names some that run: leave one of them out"
        return
    if servers.replicas > 1 or servers.devices:
        yield (
            f"{there}, and Ray gives them their GPUs: leave engine.servers.replicas and "
            "engine.servers.devices out (engine.servers.gpus are those of each)"
        )
    if config.colocated and servers.gpus:
        yield (
            "cluster.colocated puts each server on the GPU of one learner: leave "
            "engine.servers.gpus out, or set cluster.colocated=false"
        )
    if engine.transport == "ipc" and not (config.colocated and config.learners == 1):
        yield (
            f"engine.transport=ipc reaches the first learner's own GPU alone, and {there}: set "
            "engine.transport=nccl or files, or cluster.colocated=true with cluster.learners=1"
        )


def _of_colocation(recipe: "Recipe") -> Iterator[str]:
    """Servers that cannot be beside learners."""
    config = recipe.cluster
    if not config.colocated:
        return
    if not isinstance(recipe.engine, VllmEngineConfig):
        yield (
            "cluster.colocated is about servers that sample, and engine.name is "
            f"{recipe.engine.name!r}: set engine=vllm, or leave it out"
        )
    if config.samplers % config.learners:
        yield (
            f"cluster.colocated puts the same number of servers beside each learner, and "
            f"cluster.samplers = {config.samplers} cannot be divided among cluster.learners = "
            f"{config.learners}: change one of them, or set cluster.colocated=false"
        )


def _of_workers(recipe: "Recipe") -> Iterator[str]:
    """Parts of an episode that are in the process of the run alone."""
    if not recipe.cluster.workers:
        return
    learned = sorted(_used(recipe) & {"judge", "reward_model", "entropy", "self_certainty"})
    here = {
        "an agent of your own talks to the gateway in it": recipe.agent is not None,
        f"{' and '.join(learned)} of the reward ask a model that is there": bool(learned),
    }
    for why, given in here.items():
        if given:
            yield (
                f"cluster.workers is {recipe.cluster.workers}, but episodes cannot leave the "
                f"process of the run: {why}; set cluster.workers=0, or leave the other out"
            )


def _of_agent(recipe: "Recipe") -> Iterator[str]:
    """Settings of turnwise's own loop beside an agent that has its own."""
    if recipe.agent is None:
        return
    if isinstance(recipe.engine, OpenAIEngineConfig):
        yield (
            "agent talks to a policy whose tokens are sampled here, and engine.name = 'openai' "
            "says words: leave agent out, or give your agent that address itself"
        )
    if isinstance(recipe.agent, RemoteAgent) and recipe.engine.deterministic:
        yield (
            "agent = 'remote' plays as many episodes at once as agents call in, and "
            "engine.deterministic waits for all that have begun: set engine.deterministic=false"
        )
    given = {
        f"rollout.context = {recipe.rollout.context} is": recipe.rollout.context != "fail",
        "environment.tools are": bool(recipe.environment.tools),
        "environment.consequential is": bool(recipe.environment.consequential),
        "environment.latency is": recipe.environment.latency is not None,
        "judge.refinement is": getattr(recipe.judge, "refinement", None) is not None,
    }
    for what, there in given.items():
        if there:
            yield f"{what} for turnwise's own agent loop, and agent has its own: leave one out"


def _of_demonstrations(recipe: "Recipe") -> Iterator[str]:
    chosen, most = recipe.sft.demonstrations, recipe.rollout.max_turns
    if isinstance(chosen, ScriptedDemonstrations) and (chosen.turns or 0) > most:
        yield (
            f"sft.demonstrations.turns is {chosen.turns}, but an episode ends after "
            f"rollout.max_turns = {most}: lower the one, or leave it out"
        )


def _of_asynchronous_sampling(recipe: "Recipe") -> Iterator[str]:
    """Settings that neither sampling ahead nor oversampling can go with."""
    train = recipe.train
    for key in ("max_staleness", "oversample"):
        if getattr(train, key) and recipe.engine.deterministic:
            yield (
                f"train.{key} is {getattr(train, key)}, but engine.deterministic samples in "
                "lockstep, in which everybody waits for the slowest tool, so that runs repeat: set "
                f"engine.deterministic=false, or train.{key}=0"
            )
    others = {
        "curriculum.kind = by_success chooses a step's tasks by all steps before it": isinstance(
            recipe.curriculum, BySuccess
        ),
        "monitor.echo_trap.reaction = roll_back undoes any number of updates, and what is under "
        "way was sampled after them": recipe.monitor.echo_trap.reaction == "roll_back",
        "evaluation.during_rl pauses sampling": recipe.evaluation.during_rl is not None,
        "reward_model.beside_policy updates a model that episodes under way are rewarded by": (
            recipe.reward_model is not None and recipe.reward_model.beside_policy
        ),
        "entropy and self_certainty are read from the policy, which learns meanwhile": bool(
            _used(recipe) & {"entropy", "self_certainty"}
        ),
        "cluster.colocated lets learners and servers take turns": recipe.cluster.colocated,
    }
    for sentence, given in others.items():
        if train.max_staleness and given:
            yield (
                f"train.max_staleness is {train.max_staleness}, but {sentence}: set "
                "train.max_staleness=0, or leave the other out"
            )


def _of_engine(recipe: "Recipe") -> Iterator[str]:
    engine, limits, colocated = recipe.engine, recipe.rollout, recipe.cluster.colocated
    if isinstance(engine, VllmEngineConfig):
        if limits.temperature > 0 and limits.top_p < 1 and limits.min_p > 0:
            yield (
                "vLLM applies min_p before top_p, so that together they leave other tokens than "
                "they say: set rollout.top_p or rollout.min_p, not both"
            )
        if engine.transport == "adapters" and not recipe.model.lora_rank:
            yield (
                "engine.transport=adapters is for a model with adapters: set model.lora_rank, or "
                "engine.transport=files"
            )
        others = {
            "a turn keeps the adapters that it began with": engine.transport == "adapters",
            "servers that are colocated sleep while weights change": colocated,
            "with train.max_staleness=0 no turn is under way then": not recipe.train.max_staleness,
        }
        for sentence, given in others.items():
            if engine.in_flight and given:
                yield (
                    f"engine.in_flight lets turns go on while weights change, but {sentence}: set "
                    "engine.in_flight=false, or change the other"
                )
        if engine.transport == "nccl" and colocated:
            yield (
                "engine.transport=nccl is between GPUs, and colocated servers are on the learner's "
                "own: set engine.transport=ipc"
            )
        if engine.transport == "adapters" and colocated:
            yield (
                "cluster.colocated gives the base model's memory back, and adapters are sent "
                "without it: set engine.transport=files"
            )
        return
    if not isinstance(engine, EmbeddedEngineConfig):
        return
    if 0 < engine.kv_cache_tokens < limits.max_tokens:
        yield (
            f"engine.kv_cache_tokens is {engine.kv_cache_tokens}, but a single trajectory may have "
            f"rollout.max_tokens of {limits.max_tokens}: raise the one or lower the other"
        )


def _of_learning(recipe: "Recipe") -> Iterator[str]:
    if recipe.model.offload_activations and not recipe.model.gradient_checkpointing:
        yield (
            "model.offload_activations moves what model.gradient_checkpointing keeps: set "
            "model.gradient_checkpointing=true, or leave the one out"
        )
    if recipe.learning.share_prefixes and recipe.model.gradient_checkpointing:
        yield (
            "learning.share_prefixes and model.gradient_checkpointing exclude each other: set one "
            "of them to false"
        )
    if recipe.learning.share_prefixes and recipe.cluster.sequence_ranks > 1:
        yield (
            "learning.share_prefixes computes trees of tokens, and cluster.sequence_ranks above 1 "
            "computes rows in slices: set learning.share_prefixes=false or cluster.sequence_ranks=1"
        )
    if recipe.rollout.temperature == 0 and (recipe.train.steps or recipe.preferences.steps):
        yield (
            "rollout.temperature is 0, and all trajectories of a group would be the same: give a "
            "value above 0"
        )


def _of_routing_replay(recipe: "Recipe") -> Iterator[str]:
    """Passes in which recorded experts cannot be put in the place of others."""
    if not recipe.rollout.routing_replay:
        return
    given = {
        "model.gradient_checkpointing computes layers again, with experts of their own choice": (
            recipe.model.gradient_checkpointing
        ),
        "learning.share_prefixes computes trees of tokens": recipe.learning.share_prefixes,
        "cluster.sequence_ranks above 1 computes rows in slices": (
            recipe.cluster.sequence_ranks > 1
        ),
        "agent has a loop of its own, which does not record them": recipe.agent is not None,
    }
    for why, there in given.items():
        if there:
            yield (
                f"rollout.routing_replay repeats the experts of sampled tokens, and {why}: leave "
                "one of the two out"
            )


def _of_evaluation(recipe: "Recipe") -> Iterator[str]:
    during, every = recipe.evaluation.during_rl, recipe.train.checkpoint_every
    if recipe.evaluation.sft and not (recipe.sft.steps or recipe.train.steps):
        yield (
            "evaluation.sft imitates for as many updates as the run makes, and this one makes "
            "none: set it to false"
        )
    if during is None or during.every % every == 0:
        return
    for name, goes_back in (
        ("evaluation.during_rl.keep_best", during.keep_best),
        (
            "monitor.echo_trap.reaction = roll_back",
            recipe.monitor.echo_trap.reaction == "roll_back",
        ),
    ):
        if goes_back:
            yield (
                f"{name} needs a checkpoint of each step that is evaluated: make "
                f"evaluation.during_rl.every = {during.every} a multiple of "
                f"train.checkpoint_every = {every}"
            )


def _of_judge(recipe: "Recipe") -> Iterator[str]:
    """A judge without a use, a use without a judge, and a call that outlasts a verdict."""
    rewards = "judge" in _used(recipe)
    pairs = recipe.preferences.by == "judge" and recipe.preferences.steps > 0
    if recipe.judge is None:
        if pairs:
            yield "preferences.by is 'judge', and there is no judge: describe one in [judge]"
        return
    if not (rewards or pairs):
        yield (
            "nothing asks the judge: name it in reward.parts, as in reward.parts.judge = 0.5, or "
            "set preferences.by=judge, or leave [judge] out"
        )
    if recipe.judge.refinement is not None and not recipe.train.steps:
        yield (
            "judge.refinement trains the judge in steps of RL, and train.steps is 0: leave "
            "refinement out"
        )
    if rewards and recipe.judge.seconds > recipe.rollout.max_seconds:
        yield (
            f"judge.seconds is {recipe.judge.seconds:g}, but all that is asked about an episode or "
            f"a group has rollout.max_seconds = {recipe.rollout.max_seconds:g}: lower the one or "
            "raise the other"
        )


def _of_reward_model(recipe: "Recipe") -> Iterator[str]:
    """A reward model without a use, and a use without one."""
    used = "reward_model" in _used(recipe)
    if recipe.reward_model is None and used:
        yield "the reward asks a reward model, and there is none: describe one in [reward_model]"
    if recipe.reward_model is not None and not used:
        yield (
            "nothing asks the reward model: name it in reward.parts, as in "
            "reward.parts.reward_model = 0.5 (a weight of 0 measures it alone), or leave "
            "[reward_model] out"
        )

    learning = recipe.reward_model is not None and recipe.reward_model.beside_policy
    during = recipe.evaluation.during_rl
    if learning and during is not None and during.keep_best:
        yield (
            "evaluation.during_rl.keep_best goes back to the best policy, and "
            "reward_model.beside_policy would leave it with a later reward model: choose one of "
            "them"
        )


def _used(recipe: "Recipe") -> set[str]:
    """The parts that the reward is made of."""
    return set() if recipe.reward is None else recipe.reward.used

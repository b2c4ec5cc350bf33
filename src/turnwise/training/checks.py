"""Checks that the parts of a run work together, before anything is loaded or else before it begins.

Every check raises a ConfigError that says what to do. Not here: whether a recipe is well formed
(`config`), which parts of an algorithm go together (`algorithms/contradictions.py`), and what an
algorithm asks of a recipe (`algorithm_checks`).
"""

from collections.abc import Sequence

from turnwise.algorithms.parts import BYPASS, Requirement
from turnwise.algorithms.registry import Algorithm
from turnwise.config import CurriculumConfig, Recipe, VllmConfig
from turnwise.engines.base import Sampling
from turnwise.engines.vllm.completions import check_supported
from turnwise.environments.base import Environment
from turnwise.errors import ConfigError, NotSupportedError
from turnwise.forward.prefix_trees import check_sharing
from turnwise.learning.auxiliary import check_auxiliary
from turnwise.learning.preferences import check_preferences
from turnwise.learning.signals.hindsight import check_context
from turnwise.learning.signals.information_gain import check_answer
from turnwise.learning.signals.self_teacher import check_room, check_self_teacher
from turnwise.learning.signals.teacher import check_teacher, check_vocabulary
from turnwise.learning.signals.value_head import check_critic
from turnwise.monitor.trackers import check_trackers
from turnwise.rollout.context import REQUEST
from turnwise.sandbox.base import CodeSandbox
from turnwise.scaffolds.base import Scaffold
from turnwise.synthesis.demonstrations import check_behaviours
from turnwise.tokens import Source
from turnwise.training.algorithm_checks import (
    check_algorithm_for_environment,
    check_algorithm_for_recipe,
)
from turnwise.training.components import Components
from turnwise.training.reactions import check_reaction
from turnwise.types import Observation, Task


def check_recipe_and_algorithm(recipe: Recipe, algorithm: Algorithm) -> None:
    """Raise ConfigError for what contradicts itself or would do nothing; loads nothing."""
    check_algorithm_for_recipe(recipe, algorithm)
    _check_curriculum(recipe)
    _check_asynchronous(recipe, algorithm)
    _check_truncation(recipe, algorithm)
    _check_context(recipe, algorithm)
    _check_vllm(recipe)
    _check_cache(recipe)
    _check_compute_dtype(recipe)
    if recipe.learning.share_prefixes and recipe.model.gradient_checkpointing:
        raise ConfigError(
            "learning.share_prefixes and model.gradient_checkpointing exclude each other: "
            "set one of them to false"
        )
    if recipe.monitor.mutual_information_every and recipe.train.tasks_per_step < 2:
        raise ConfigError(
            "monitor.mutual_information_every compares tasks: give train.tasks_per_step at least 2"
        )
    if recipe.evaluation.sft and not (recipe.sft.steps or recipe.train.steps):
        raise ConfigError(
            "evaluation.sft imitates for as many updates as the run makes, and this one makes "
            "none: set it to false"
        )
    _check_validation(recipe)
    check_auxiliary(algorithm, recipe)
    if recipe.sft.file and recipe.sft.behaviours:
        raise ConfigError(
            "sft.file and sft.behaviours both say what is imitated: leave one of them out"
        )
    if _demonstrates(recipe, algorithm):
        check_behaviours(recipe.sft.behaviours)
    check_preferences(recipe)
    check_teacher(algorithm, recipe)
    check_self_teacher(recipe, algorithm)
    check_critic(recipe, algorithm)
    check_reaction(recipe, algorithm)
    check_trackers(recipe.monitor.trackers)


def check_parts(parts: Components, algorithm: Algorithm, tasks: Sequence[Task]) -> None:
    """Raise ConfigError where environment, model or tokenizer lack what the recipe and its
    algorithm need; `tasks` are those of training, with their secrets."""
    recipe = parts.recipe
    if parts.environment.pictures:
        _check_pictured(recipe, algorithm)
    _check_sandbox(recipe, parts.environment)
    check_algorithm_for_environment(algorithm, parts.environment)
    if _demonstrates(recipe, algorithm):
        _check_oracle(parts.environment, tasks[0])
    check_vocabulary(recipe, parts.tokenizer)
    _check_summary(recipe, parts.scaffold)
    if recipe.learning.share_prefixes:
        check_sharing(parts.model, recipe.rollout.max_tokens)
    context = getattr(parts.model.config.get_text_config(), "max_position_embeddings", None)
    if algorithm.self_teacher_coefficient:
        check_room(parts.scaffold, recipe.rollout.max_tokens, context)
    if Requirement.HINDSIGHT in algorithm.needs:
        check_context(parts.scaffold, recipe.rollout.max_tokens, context)
    if Requirement.INFORMATION_GAIN in algorithm.needs:
        oracle, longest = parts.environment.oracle, recipe.rollout.max_tokens
        check_answer(tasks[0], parts.scaffold, oracle, longest, context)


def _demonstrates(recipe: Recipe, algorithm: Algorithm) -> bool:
    """Whether demonstrations are played: for the cold start, to be mixed into RL, or to compare
    with imitation alone. Those of a file are not."""
    mixed_in = recipe.train.steps and algorithm.demonstration_coefficient
    return not recipe.sft.file and bool(recipe.sft.steps or mixed_in or recipe.evaluation.sft)


def _check_validation(recipe: Recipe) -> None:
    config, train = recipe.evaluation, recipe.train
    if not config.every:
        if config.keep_best or config.patience:
            raise ConfigError(
                "evaluation.keep_best and evaluation.patience go by evaluations during RL, and "
                "there are none: set evaluation.every"
            )
        return
    if config.every % train.checkpoint_every and config.keep_best:
        raise ConfigError(
            f"evaluation.keep_best needs a checkpoint of each step that is evaluated: make "
            f"evaluation.every = {config.every} a multiple of train.checkpoint_every = "
            f"{train.checkpoint_every}"
        )
    if recipe.monitor.echo_trap == "roll_back" and config.keep_best:
        raise ConfigError(
            "monitor.echo_trap = roll_back and evaluation.keep_best each keep a best checkpoint of "
            "their own: choose one of them"
        )
    if train.max_staleness:
        raise ConfigError(
            f"evaluation.every pauses sampling, and train.max_staleness is {train.max_staleness}: "
            "set max_staleness=0, or evaluation.every=0"
        )


def _check_curriculum(recipe: Recipe) -> None:
    curriculum = recipe.curriculum
    if curriculum.tasks == "all" and curriculum != CurriculumConfig():
        raise ConfigError(
            "the curriculum has settings, but curriculum.tasks is 'all': set it to 'by_success'"
        )
    if curriculum.lowest > curriculum.highest:
        raise ConfigError(
            "curriculum.lowest is above curriculum.highest: no task lies between them"
        )


def _check_asynchronous(recipe: Recipe, algorithm: Algorithm) -> None:
    """Sampling ahead, and oversampling, where something else forbids them."""
    train = recipe.train
    ahead, spare = f"train.max_staleness is {train.max_staleness}", "train.oversample is set"
    if train.max_staleness and recipe.engine.deterministic:
        raise ConfigError(
            f"{ahead}, but engine.deterministic samples in lockstep, in which everybody waits for "
            "the slowest tool: set engine.deterministic=false, or max_staleness=0"
        )
    if train.max_staleness and recipe.curriculum.tasks != "all":
        raise ConfigError(
            f"{ahead}, but a curriculum chooses a step's tasks by all steps before it: set "
            "max_staleness=0, or curriculum.tasks=all"
        )
    if train.max_staleness and recipe.monitor.echo_trap == "roll_back":
        raise ConfigError(
            f"{ahead}, but monitor.echo_trap = roll_back undoes any number of updates, and what is "
            "under way was sampled after them: choose another reaction, or max_staleness=0"
        )
    if train.oversample and recipe.engine.deterministic:
        raise ConfigError(
            f"{spare}, but engine.deterministic makes runs repeat, and who finishes first depends "
            "on the clock: set engine.deterministic=false, or oversample=0"
        )
    if train.oversample and algorithm.rollout != "independent":
        raise ConfigError(
            f"{spare}, but rollout {algorithm.rollout} of algorithm {algorithm.name} needs each of "
            "its episodes: set oversample=0"
        )


def _check_truncation(recipe: Recipe, algorithm: Algorithm) -> None:
    """Ratios to a distribution that some tokens are left out of."""
    limits = recipe.rollout
    left_out = limits.top_k > 0 or limits.top_p < 1 or limits.min_p > 0
    if recipe.train.steps and left_out and algorithm.correction == BYPASS:
        raise ConfigError(
            "rollout.top_k, top_p and min_p leave tokens out, so that the others are sampled more "
            f"often than the policy says, and correction {BYPASS} clips ratios to that: set "
            'algorithm.correction to "none" or "truncated"'
        )


def _check_context(recipe: Recipe, algorithm: Algorithm) -> None:
    """Contexts that follow one another, where there is no room or no place for them."""
    limits = recipe.rollout
    if limits.context == "fail":
        return
    if algorithm.rollout not in ("independent", "greedy"):
        raise ConfigError(
            f"rollout.context is {limits.context}, but rollout {algorithm.rollout} of algorithm "
            f"{algorithm.name} goes on from the middle of episodes of one context: set "
            "rollout.context to 'fail'"
        )
    if limits.max_tokens < 4 * limits.max_turn_tokens:
        raise ConfigError(
            f"rollout.context is {limits.context}, but rollout.max_tokens = {limits.max_tokens} is "
            f"less than four turns of rollout.max_turn_tokens = {limits.max_turn_tokens}: a new "
            "context would be full at once; raise one or lower the other"
        )


def _check_summary(recipe: Recipe, scaffold: Scaffold) -> None:
    """Summaries, whose request takes room as well."""
    limits = recipe.rollout
    if limits.context != "summarise":
        return
    segments = scaffold.extend(Observation(REQUEST, Source.USER), ())
    longest = sum(len(segment.tokens) for segment in segments)
    needed = 4 * limits.max_turn_tokens + longest
    if limits.max_tokens < needed:
        raise ConfigError(
            f"rollout.context is summarise, and asking for a summary takes {longest} tokens: with "
            f"four turns of rollout.max_turn_tokens = {limits.max_turn_tokens} that is more than "
            f"rollout.max_tokens = {limits.max_tokens}; raise it to {needed}, or lower the other"
        )


def _check_vllm(recipe: Recipe) -> None:
    """Raise ConfigError for settings that servers lack, and for those of servers without any."""
    vllm, limits = recipe.vllm, recipe.rollout
    if recipe.engine.name != "vllm":
        if vllm != VllmConfig():
            raise ConfigError(
                f"vllm is set, but the engine is {recipe.engine.name}: set engine.name=vllm"
            )
        return
    if recipe.engine.deterministic:
        raise ConfigError(
            "engine.deterministic samples in lockstep, which vLLM does not: its numbers depend on "
            "what is sampled together. Set engine.deterministic=false"
        )
    check_supported(Sampling(1, limits.temperature, top_p=limits.top_p, min_p=limits.min_p))
    if vllm.urls and (vllm.python or vllm.devices or vllm.arguments or vllm.replicas > 1):
        raise ConfigError(
            "vllm.urls names servers that run; vllm.python, replicas, devices and arguments are "
            "for servers to be started: leave the one or the others out"
        )
    if vllm.devices and len(vllm.devices) != vllm.replicas:
        raise ConfigError(
            f"vllm.devices has {len(vllm.devices)} entries for {vllm.replicas} servers: give one "
            "for each of vllm.replicas"
        )
    if vllm.colocated and recipe.train.max_staleness:
        raise ConfigError(
            "vllm.colocated lets servers sleep while learning goes on, and train.max_staleness "
            "samples meanwhile: set max_staleness=0, or give servers GPUs of their own"
        )


def _check_cache(recipe: Recipe) -> None:
    """A cache that no trajectory would fit in once it is long."""
    tokens, longest = recipe.engine.kv_cache_tokens, recipe.rollout.max_tokens
    if 0 < tokens < longest:
        raise ConfigError(
            f"engine.kv_cache_tokens is {tokens}, but a single trajectory may have "
            f"rollout.max_tokens of {longest}: raise the one or lower the other"
        )


def _check_compute_dtype(recipe: Recipe) -> None:
    """Sampling in bfloat16 where it is something else that says so."""
    if recipe.engine.compute_dtype == "auto":
        return
    if recipe.engine.name == "vllm":
        raise ConfigError(
            "engine.compute_dtype is for the embedded engine; what servers compute in is "
            "vllm.dtype: set that"
        )
    if recipe.model.lora_rank:
        raise ConfigError(
            "engine.compute_dtype computes with copies of a model's own weights, and "
            "model.lora_rank puts adapters beside them: leave one of them out"
        )


def _check_pictured(recipe: Recipe, algorithm: Algorithm) -> None:
    """Raise ConfigError for parts that put tokens together on their own, without their pictures."""
    used = {
        "learning.share_prefixes": recipe.learning.share_prefixes,
        "monitor.mutual_information_every": recipe.monitor.mutual_information_every,
        "teacher.model": recipe.teacher.model,
        "a self_teacher_coefficient": algorithm.self_teacher_coefficient,
        "log-probabilities in hindsight": Requirement.HINDSIGHT in algorithm.needs,
        "an information gain": Requirement.INFORMATION_GAIN in algorithm.needs,
    }
    for name, given in used.items():
        if given:
            raise ConfigError(
                f"the environment shows pictures, for which {name} has no place: leave it out, or "
                "have the environment tell its observations in words"
            )


def _check_sandbox(recipe: Recipe, environment: Environment) -> None:
    """Raise ConfigError where programs may run for longer than their verdict has: an agent that
    writes them could have an episode left ungraded."""
    sandbox, most = getattr(environment, "sandbox", None), recipe.rollout.max_seconds
    if not isinstance(sandbox, CodeSandbox):
        return
    seconds, programs = sandbox.settings.limits.seconds, environment.verdict_programs
    if programs * seconds >= most:
        count = "one" if programs == 1 else str(programs)
        raise ConfigError(
            f"programs in the sandbox may run for {seconds:g} seconds, and a verdict that runs "
            f"{count} has rollout.max_seconds = {most:g}: raise rollout.max_seconds, or lower the "
            "environment's seconds"
        )


def _check_oracle(environment: Environment, task: Task) -> None:
    try:
        environment.oracle(task)
    except NotSupportedError as error:
        raise ConfigError(
            f"the cold start needs the environment's oracle: {error}. Set sft.steps=0, or give the "
            "environment one"
        ) from error

"""What contradicts itself is an error of one line, before anything is loaded: every case there is.

What `make_algorithm` refuses stands in algorithms/test_algorithm_registry.py.
"""

import ast
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes import Capitals, Reporting, Restorable
from tests.marked import WING, marked, needs
from tests.parts.recipes import Made
from tests.sandboxes import Empty
from tests.small_runs import FAKES
from turnwise.algorithms import Algorithm, make_algorithm
from turnwise.algorithms.registry import SECTIONS
from turnwise.config import AlgorithmConfig, Recipe
from turnwise.conflicts import Need
from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.derived import guarded
from turnwise.environments.tasksets import Split
from turnwise.errors import ConfigError, DataError
from turnwise.monitor.display import SilentDisplay
from turnwise.parts import algorithm_checks, checks
from turnwise.parts.algorithm_checks import signal_tables
from turnwise.parts.checks import check_parts
from turnwise.parts.components import Components
from turnwise.parts.first_checks import algorithm_of, check_environment
from turnwise.parts.rewarding import parts_of_models, reward_of
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.sandbox.settings import SandboxSettings
from turnwise.storage.run_folder import RunFolder
from turnwise.tokens import Segment, Source
from turnwise.training.prepare import prepare
from turnwise.types import Action, Observation, Task, ToolCall

LOOP = needs(Need.OWN_LOOP, "agent")
ONE_CONTEXT = needs(Need.ONE_CONTEXT, "rollout.context = 'drop'")
IN_WORDS = needs(Need.WORDS, "environment capitals")
REFINED = "judge.refinement.requests=2 reward.parts.judge=0.01"
CONTRADICTIONS: list[tuple[str, str]] = [
    ("agent=mine.py:run algorithm.name=gigpo", LOOP),
    ("agent=mine.py:run algorithm.name=counterfactual", LOOP),
    ("algorithm.name=tree_grpo train.group_size=6", "make them equal"),
    ("train.group_size=1", "compares within a group: give at least 2"),
    (
        "algorithm.name=ppo train.group_size=1 algorithm.group_filter=all_equal",
        "group_filter all_equal of algorithm ppo keeps groups whose rewards differ",
    ),
    (
        "algorithm.name=ppo train.group_size=1 monitor.echo_trap=filter",
        "reaction = filter keeps groups whose rewards differ: give at least 2",
    ),
    ("algorithm.name=sdpo train.group_size=1", "another success of the group: give at least 2"),
    (
        "algorithm.name=reinforce train.group_size=1 train.tasks_per_step=1",
        "compares with the batch's others, in groups of one: give at least 2",
    ),
    ("algorithm.name=pass_at_k algorithm.k=5", "the best of k = 5 trajectories: give at least 5"),
    ("learning.updates_per_step=3", "has groups of its own: give at least 3"),
    (
        "monitor.mutual_information.every=1 train.tasks_per_step=1",
        "monitor.mutual_information compares tasks: give at least 2",
    ),
    ("algorithm.name=gdpo", "as in algorithm.reward_weights.exact_match=1"),
    (
        "algorithm.name=gdpo algorithm.reward_weights.f1=1 judge.refinement.requests=2 "
        "reward.parts.judge=0",
        needs(Need.NAMED_REWARDS, "judge.refinement"),
    ),
    (
        "algorithm.name=gdpo algorithm.reward_weights.f1=1 reward.parts.f1=0.5",
        needs(Need.SUMMED_REWARD, "estimator gdpo of algorithm gdpo"),
    ),
    (
        f"algorithm.name=mt_grpo {REFINED}",
        r"needs turn rewards, and judge\.refinement learns from replies of one turn "
        "with a reward, which have none",
    ),
    (
        f"algorithm.name=pass_at_k train.group_size=5 algorithm.k=5 {REFINED}",
        "judge.refinement.replies is 4, and algorithm pass_at_k .* give at least 5",
    ),
    (
        f"algorithm.self_teacher_coefficient=0.1 {REFINED}",
        needs(Need.TASK_EPISODES, "judge.refinement"),
    ),
    (
        "train.dynamic_sampling_rounds=1",
        needs(Need.GROUPS_LEFT_OUT, "group_filter none of algorithm grpo"),
    ),
    ("algorithm.name=kl_cov", "needs learning.updates_per_step or learning.epochs of 2"),
    (
        "algorithm.name=starpo algorithm.kl_target=1 algorithm.kl_horizon=1",
        "the KL coefficient could become 0 at once; raise it",
    ),
    (
        f"engine={FAKES}:Untold rollout.top_p=0.9",
        "needs the probabilities that tokens were drawn with, and engine .*:Untold does not "
        r"say which tokens rollout\.top_k, top_p and min_p leave",
    ),
    (
        "rollout.context=drop algorithm.name=tree_grpo train.group_size=8 "
        "rollout.max_turn_tokens=9",
        ONE_CONTEXT,
    ),
    ("rollout.context=drop rollout.max_turn_tokens=9 algorithm.name=sdpo", ONE_CONTEXT),
    (
        "train.oversample=1 engine.deterministic=false algorithm.name=remax",
        needs(Need.SPARE_EPISODES, "rollout greedy of algorithm remax"),
    ),
    (
        "algorithm.name=echo learning.mask_observations=false",
        needs(Need.OBSERVATIONS, "observation_coefficient of algorithm echo"),
    ),
    (
        "algorithm.name=sdpo learning.mask_observations=false",
        needs(Need.POLICY_LOSS, "estimator none of algorithm sdpo"),
    ),
    (
        "algorithm.name=paw learning.mask_observations=false",
        needs(Need.OBSERVATIONS, "extension world_model of algorithm paw"),
    ),
    (
        "algorithm.extension=fresh_replay rollout.top_p=0.9",
        needs(Need.WHOLE_VOCABULARY, "rollout.top_k, top_p or min_p"),
    ),
    (
        "algorithm.name=mipu train.max_staleness=1 engine.deterministic=false",
        needs(Need.STILL_POLICY, "train.max_staleness = 1"),
    ),
    ("algorithm.name=mipu cluster.learners=2", needs(Need.ONE_LEARNER, "cluster.learners")),
    (f"algorithm.name=mipu {REFINED}", "needs acceptance, and judge.refinement"),
    ("sft.steps=1 sft.demonstrations.behaviours={faithfull=1}", "did you mean 'faithful'"),
    ("sft.steps=1", "give at least one behaviour a positive share"),
    ("sft.steps=1 sft.demonstrations.behaviours={faithful=0}", "behaviour a positive share"),
    ("algorithm.demonstration_coefficient=0.1", "give at least one behaviour a positive share"),
    ("algorithm.name=distillation", "needs a teacher: set algorithm.teacher.model"),
    ("algorithm.name=distillation algorithm.teacher.model={}", "needs a teacher: set algorithm"),
    ("algorithm.teacher.model=somewhere", "algorithm grpo has no teacher: leave it out"),
    ("algorithm.self_teacher.rate=0.1", "algorithm grpo has no self teacher: leave it out"),
    ("algorithm.implicit_reward.beta=0.1", "algorithm grpo has no implicit reward: leave it out"),
    ("algorithm.critic.pretraining_steps=1", "algorithm grpo has no critic: leave it out"),
    ("algorithm.critic=head", "algorithm grpo has no critic: leave it out"),
]
"""Overrides of a recipe, and what its one line ends with or has at its heart."""


class Wordy:
    """A scaffold whose messages are of ten tokens."""

    def extend(self, observation: Observation, written: Sequence[int] = ()) -> Sequence[Segment]:
        return [Segment([1] * 10, Source.USER)]

    def render(self, action: Action) -> list[int]:
        return [1] * 10


class Speechless(Capitals):
    """Without an oracle."""

    oracle = Environment.oracle


class Pictured(Capitals):
    """Observations have images."""

    shows_images = True


DISTILLED = "algorithm.name=distillation algorithm.teacher.model"


class Sourced(Capitals):
    """Its tasks are of one environment of several."""

    def tasks(self, split: Split) -> Sequence[Task]:
        return [replace(task, info={"environment": "sums"}) for task in super().tasks(split)]


class Answerless(Capitals):
    """Its oracle acts, and answers nothing."""

    def oracle(self, task: Task) -> Sequence[Action]:
        return [Action("", calls=(ToolCall("lookup", {"country": task.id}),))]


class Graded(Capitals):
    """Rewards that may be below 0."""

    spec = EnvironmentSpec("graded", "1", rewards="signed")


class Sandboxed(Capitals):
    """Grades in a sandbox whose programs may run for ten seconds."""

    def __init__(self) -> None:
        self.sandbox = Empty(SandboxSettings())


class JudgedTwice(Sandboxed):
    """Grades by two such programs, one after the other."""

    verdict_programs = 2


def restrained() -> Environment:
    """The same under a rule for its tool."""
    return guarded(JudgedTwice(), {"lookup": 1})


RANK = f"reward.outcome=2 reward.parts.rank.use={FAKES}:rank"
LACKS: list[tuple[str, Callable[[], Environment], str]] = [
    (
        "algorithm.name=counterfactual",
        Capitals,
        r"needs episodes that go on from the middle, and .* has no snapshot\(\) and restore\(\)",
    ),
    (
        "rollout.context=truncate rollout.max_turn_tokens=9",
        Pictured,
        needs(Need.IMAGES, "rollout.context = 'truncate'"),
    ),
    ("algorithm.name=max_rl", Graded, needs(Need.REWARDS_FROM_0, "environment graded")),
    ("algorithm.name=pass_at_k", Graded, needs(Need.REWARDS_0_AND_1, "environment graded")),
    ("algorithm.name=igpo", Speechless, "the right answers, which are those of the environment's"),
    ("algorithm.name=igpo", Answerless, "the oracle of task France ends without one"),
    ("algorithm.name=igpo rollout.max_tokens=504", Capitals, "lower rollout.max_tokens to 503"),
    ("algorithm.name=igpo", Pictured, IN_WORDS),
    (
        "algorithm.name=gdpo algorithm.reward_weights.lettres=1",
        Reporting,
        "unknown algorithm.reward_weights 'lettres': did you mean 'letters'",
    ),
    ("algorithm.name=mt_grpo", Capitals, "needs turn rewards, and environment capitals has none"),
    ("algorithm.name=mt_grpo reward.outcome=2", Capitals, "turn rewards, and the recipe's reward"),
    ("algorithm.name=pass_at_k reward.outcome=2", Capitals, "0 and 1, and the recipe's reward has"),
    ("algorithm.name=max_rl reward.failure=-1", Capitals, "and more, and the recipe's reward"),
    (f"algorithm.name=remax {RANK}", Capitals, needs(Need.SINGLE_REWARDS, "a part of the reward")),
    ("sft.steps=1 sft.demonstrations.behaviours.faithful=1", Speechless, "Set sft.steps=0, or giv"),
    ("algorithm.name=distillation algorithm.teacher.model={model}", Capitals, "of the same family"),
    (f"{DISTILLED}.sums={{model}}", Capitals, "of several, as joint is: name one model"),
    (f"{DISTILLED}.sum={{model}}", Sourced, "algorithm.teacher.model 'sum': did you mean 'sums'"),
    ("algorithm.name=sdpo rollout.max_tokens=247", Capitals, "lower rollout.max_tokens to 246"),
    ("algorithm.name=hca rollout.max_tokens=503", Capitals, "lower rollout.max_tokens to 502"),
    (
        "rollout.context=summarise rollout.max_turn_tokens=48",
        Capitals,
        "raise it to 202, or lower the other",
    ),
    ("learning.share_prefixes=true", Capitals, "does not have the plain full attention"),
    ("learning.share_prefixes=true", Pictured, IN_WORDS),
    ("algorithm.name=sdpo", Pictured, IN_WORDS),
    (
        'rollout.max_turns=4 rollout.horizon={"turns"=2,"part"="held"}',
        Capitals,
        "horizon.part is 'held', but of an episode the environment reports",
    ),
    ("rollout.max_seconds=10", Sandboxed, "may run for 10 seconds, and a verdict .* = 10: raise"),
    ("rollout.max_seconds=20", JudgedTwice, "and a verdict that runs 2 has .* = 20: raise"),
    ("rollout.max_seconds=20", restrained, "and a verdict that runs 2 has .* = 20: raise"),
]
"""And an environment: what is found once the parts are there, in a model of context 512 with a
sliding window."""


def parts(recipe: Recipe, environment: Callable[[], Environment]) -> Components:
    """What the checks look at, and nothing else."""
    config = SimpleNamespace(
        max_position_embeddings=512,
        layer_types=["sliding_attention"],
        _attn_implementation="sdpa",
        get_text_config=lambda: config,
    )
    model: Any = SimpleNamespace(config=config)
    tokenizer: Any = SimpleNamespace(get_vocab=lambda: {"word": 0})
    scaffold: Any = Wordy()
    engine: Any = None
    made = environment()
    algorithm = make_algorithm(recipe.algorithm.name, recipe.algorithm.overrides)
    reward, places = (
        reward_of(recipe, algorithm, made, parts_of_models(recipe)),
        PrioritySemaphore(1),
    )
    return Components(recipe, made, model, tokenizer, scaffold, engine, places, reward)


def check_all(recipe: Recipe, algorithm: Algorithm, environment: Callable[[], Environment]) -> None:
    """The checks of an environment, and of what stands on a model."""
    there = parts(recipe, environment)
    tasks = there.environment.tasks("train")
    check_environment(recipe, there.environment, there.reward, algorithm, tasks)
    check_parts(there, algorithm, tasks)


@pytest.mark.parametrize(("overrides", "message"), marked(CONTRADICTIONS))
def test_a_contradiction_is_one_line_before_anything_is_loaded(
    made: Made, tmp_path: Path, overrides: str, message: str
) -> None:
    """Neither environment nor model exist, so that loading either would fail otherwise."""
    recipe, _ = made(overrides)
    with pytest.raises(ConfigError, match=message) as caught:
        prepare(recipe, RunFolder.new(tmp_path / "run"), SilentDisplay())
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_without_a_contradiction_loading_begins(made: Made, tmp_path: Path) -> None:
    recipe, _ = made("")
    with pytest.raises(DataError, match="/nowhere/model: there is no such folder"):
        prepare(recipe, RunFolder.new(tmp_path / "run"), SilentDisplay())


@pytest.mark.parametrize(("overrides", "environment", "message"), marked(LACKS))
def test_what_the_parts_lack_is_one_line(
    made: Made, overrides: str, environment: Callable[[], Environment], message: str
) -> None:
    recipe, algorithm = made(overrides)
    assert algorithm_of(recipe) == algorithm
    with pytest.raises(ConfigError, match=message) as caught:
        check_all(recipe, algorithm, environment)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    marked(
        [
            *("ppo", "turn_ppo", "vapo", "bilevel_ppo", "reinforce", "reinforce_pp"),
            *("remax", "hca", "distillation algorithm.teacher.model=somewhere"),
        ]
    ),
)
def test_what_compares_nothing_in_groups_may_have_groups_of_one(made: Made, name: str) -> None:
    recipe, algorithm = made(f"algorithm.name={name} train.group_size=1")
    assert algorithm_of(recipe) == algorithm


@pytest.mark.parametrize(
    "overrides",
    marked(
        [
            *("algorithm.name=counterfactual", "algorithm.name=sdpo", "algorithm.name=hca"),
            "rollout.context=summarise rollout.max_turn_tokens=47",
        ]
    ),
)
def test_parts_that_lack_nothing_pass(made: Made, overrides: str) -> None:
    check_all(*made(overrides), Restorable)


@WING
@pytest.mark.wing("judges")
@pytest.mark.wing("gateway")
@pytest.mark.wing("cluster")
@pytest.mark.wing("vllm")
def test_no_check_is_without_a_case(made: Made) -> None:
    """Every place in `checks`, and in the checks that it calls, where an error is raised."""
    found = {raised(algorithm_of, made(case)[0]) for case, _ in CONTRADICTIONS}
    for overrides, environment, _ in LACKS:
        found.add(raised(check_all, *made(overrides), environment))
    expected = set(places())
    assert len(expected) > 12
    assert expected - found == set()


def raised(function: Callable[..., None], *arguments: Any) -> tuple[str, int]:
    """File and line of the statement that raised."""
    with pytest.raises(ConfigError) as caught:
        function(*arguments)
    last = caught.traceback[-1]
    return Path(last.path).name, last.lineno + 1


def places() -> Iterator[tuple[str, int]]:
    """File and line of every `raise` of a ConfigError."""
    modules = (checks, algorithm_checks)
    functions = {f for module in modules for _, f in inspect.getmembers(module, inspect.isfunction)}
    functions |= set(checks_of_wing())
    for function in functions:
        lines, first = inspect.getsourcelines(function)
        for node in ast.walk(ast.parse("".join(lines))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                name = ast.unparse(node.exc.func)
                if name in ("ConfigError", "unknown_name"):
                    yield Path(inspect.getfile(function)).name, first + node.lineno - 1


def checks_of_wing() -> list[Callable[..., None]]:
    """Those of the makers of signals, and of the size of trees."""
    from turnwise_algorithms.signals.hindsight import check_context
    from turnwise_algorithms.signals.information_gain import check_answer
    from turnwise_algorithms.signals.self_teacher import check_room
    from turnwise_algorithms.signals.teacher import check_environments, check_vocabulary
    from turnwise_algorithms.tree_rollouts import check_tree_size

    of_teachers = [check_environments, check_vocabulary]
    return [check_context, check_answer, check_room, *of_teachers, check_tree_size]


def test_the_tables_of_signals_are_those_of_a_recipe() -> None:
    """Three lists: what an algorithm may have, what a recipe may set, what errors propose."""
    tables = {key for key, field in AlgorithmConfig.model_fields.items() if field.default is None}
    assert set(signal_tables(make_algorithm("grpo", {}))) == tables == set(SECTIONS)

"""What does not go together: most of it cannot be written, the rest is one sentence at loading."""

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.marked import marked, needs
from turnwise.config import bounds, engine, load_recipe, rollout
from turnwise.conflicts import Need
from turnwise.errors import ConfigError

RECIPE = """
name = "x"
environment = { name = "search" }
train = { steps = 1, checkpoint_every = 1 }
rollout = { max_tokens = 200 }
"""
AHEAD = "train.max_staleness=1 engine.deterministic=false"

STILL = needs(Need.STILL_POLICY, "train.max_staleness = 1")
LOCKSTEP = needs(Need.FREE_SAMPLING, "engine.deterministic")
HERE = needs(Need.OWN_PROCESS, "cluster.workers = 2")
EMBEDDED = needs(Need.SERVERS, "engine.name = 'embedded'")
OWN_GPUS = needs(Need.OWN_GPUS, "cluster.colocated")
ONCE = needs(Need.ONE_PASS, "model.gradient_checkpointing = true")
UNWRITABLE = [
    (
        "engine.servers.replicas=2 engine=vllm engine=embedded engine.servers.gpus=1",
        "engine.servers goes with engine.name = 'vllm', but that is 'embedded'",
    ),
    ("engine=vllm engine.deterministic=true", "engine.name = 'embedded', but that is 'vllm'"),
    ("engine=vllm engine.options.n=1", "does not go with engine.name = 'vllm'"),
    ("engine=mine.py:Own engine.kv_cache_tokens=9", "engine.name = 'embedded', but that is 'mine"),
    (
        'engine=vllm engine.servers.urls=["http://localhost:1"] engine.servers.replicas=2',
        "engine.servers.replicas does not go with engine.servers.urls",
    ),
    ("agent=mine.py:run agent.sandbox=true", "agent.sandbox does not go with agent.run"),
    ("agent=remote", "agent.port is missing"),
    ("engine=openai engine.url=http://h/v1", "engine.model is missing"),
    ("engine=vllm engine.servers.urls=[]", r"engine.servers.urls is \[\]: give at least 1"),
    (
        "algorithm.critic.body_coefficient=1",
        "goes with algorithm.critic.kind = 'head', but that is 'separate': leave it out",
    ),
    ("curriculum.window=8", "goes with curriculum.kind = 'by_success', but that is 'all'"),
    ("curriculum=by_success curriculum.margin=-0.1", "curriculum.margin is -0.1: give a value of"),
    (
        "sft.demonstrations.file=x.jsonl sft.demonstrations.behaviours.faithful=1",
        "sft.demonstrations.behaviours does not go with sft.demonstrations.file = 'x.jsonl'",
    ),
    ("evaluation.during_rl.patience=1", "evaluation.during_rl.every is missing: give it a value"),
    ("monitor.mutual_information.tasks=8", "monitor.mutual_information.every is missing"),
    (
        "monitor.echo_trap=stop monitor.echo_trap.learning_rate_factor=0.5",
        "does not go with monitor.echo_trap.reaction = 'stop': leave one of them out",
    ),
    ("judge=pairwise judge.high=1", "judge.high goes with judge.form = 'pointwise'"),
    ("judge=pairwise judge.weights={}", "judge.weights goes with judge.form = 'rubric'"),
    ("judge.model=scripted judge.model.url=x", "goes with judge.model.kind = 'endpoint'"),
    ("judge.model=endpoint", "judge.model.url is missing"),
    ("algorithm.teacher={}", "algorithm.teacher.model is missing: give it a value"),
]
"""Overrides that could say what contradicts itself, if there were a way; and why there is none."""

CONTRADICTIONS = [
    (
        "agent=mine.py:run rollout.context=drop rollout.max_turn_tokens=50",
        needs(Need.OWN_LOOP, "agent"),
    ),
    (
        "agent=mine.py:run engine=openai engine.url=http://h/v1 engine.model=m",
        needs(Need.TOKENS, "engine.name = 'openai'"),
    ),
    ("engine=mine.py:Own cluster.samplers=2", needs(Need.SERVERS, "engine.name = 'mine.py:Own'")),
    ("cluster.samplers=2 cluster.workers=2", EMBEDDED),
    (
        'engine=vllm engine.servers.urls=["http://localhost:1"] cluster.samplers=2',
        needs(Need.STARTED_SERVERS, "engine.servers.urls"),
    ),
    (
        "engine=vllm engine.servers.replicas=2 cluster.samplers=2",
        needs(Need.SERVERS_HERE, "cluster.samplers = 2"),
    ),
    ("engine=vllm engine.servers.gpus=1 cluster.samplers=2 cluster.colocated=true", OWN_GPUS),
    (
        "engine=vllm engine.transport=ipc cluster.samplers=2",
        needs(Need.FIRST_GPU, "cluster.samplers = 2"),
    ),
    (
        'engine=vllm engine.servers.arguments=["--tensor-parallel-size","2"]',
        "engine.servers.arguments has --tensor-parallel-size: set engine.servers.gpus",
    ),
    (
        "engine=vllm cluster.colocated=true cluster.samplers=3 cluster.learners=2",
        "cluster.samplers = 3 cannot be divided among cluster.learners = 2: change one of them",
    ),
    ("cluster.colocated=true", EMBEDDED),
    ("agent=mine.py:run cluster.workers=2", HERE),
    ("reward.parts.judge=1 judge=pairwise cluster.workers=2", HERE),
    ("reward.parts.entropy=1 cluster.workers=2", HERE),
    ("agent=remote agent.port=8123", "set engine.deterministic=false"),
    ("judge=pairwise", "nothing asks the judge: name it in reward.parts"),
    ("reward.parts.reward_model=1", r"describe one in \[reward_model\]"),
    (
        'reward_model.data=["a"] reward_model.beside_policy=true reward.parts.reward_model=1 '
        "evaluation.during_rl.every=10 evaluation.during_rl.keep_best=true",
        needs(Need.FIXED_REWARD, "reward_model.beside_policy"),
    ),
    ("reward_model.steps=1 reward.parts.reward_model=1", "has nothing to learn from"),
    ('reward_model.data=["a"]', "nothing asks the reward model: name it in reward.parts"),
    ("evaluation.best_of=f1", "there is one: raise evaluation.episodes_per_task"),
    ("preferences.by=judge preferences.steps=1", r"describe one in \[judge\]"),
    ("judge.seconds=300 reward.parts.judge=1", "rollout.max_seconds = 120: lower the one or raise"),
    ("judge.low=3 judge.high=3 reward.parts.judge=1", "give a low below the high"),
    ("judge.model=scripted judge.refinement.requests=2", "refinement out, or set judge.model=pol"),
    ("judge=rubric judge.refinement.requests=2", "set judge.form to pairwise or pointwise, or"),
    (
        "judge.refinement.requests=2 train.steps=0 reward.parts.judge=1",
        needs(Need.STEPS_OF_RL, "train.steps = 0"),
    ),
    ("judge.cache=kept reward.parts.judge=1", "leave cache out, or name another model"),
    ("train.max_staleness=1", LOCKSTEP),
    ("train.oversample=1", LOCKSTEP),
    (f"{AHEAD} curriculum=by_success", STILL),
    (f"{AHEAD} monitor.echo_trap=roll_back", STILL),
    (f"{AHEAD} evaluation.during_rl.every=1", STILL),
    ("engine=vllm cluster.colocated=true train.max_staleness=1", STILL),
    (
        "engine=vllm rollout.top_p=0.9 rollout.min_p=0.1",
        needs(Need.MIN_P_LAST, "engine.name = 'vllm'"),
    ),
    ("engine=vllm engine.in_flight=true", needs(Need.TURNS_UNDER_WAY, "train.max_staleness = 0")),
    (
        "engine=vllm engine.in_flight=true engine.transport=adapters model.lora_rank=4 "
        "train.max_staleness=1",
        needs(Need.TURNS_UNDER_WAY, "engine.transport = 'adapters'"),
    ),
    ("engine=vllm engine.transport=nccl cluster.colocated=true", OWN_GPUS),
    ("engine=vllm engine.transport=adapters", needs(Need.ADAPTERS, "model.lora_rank = 0")),
    (
        "engine=vllm engine.transport=adapters cluster.colocated=true model.lora_rank=4",
        needs(Need.BASE_MODEL, "cluster.colocated"),
    ),
    (
        'engine=vllm engine.servers.replicas=2 engine.servers.devices=["0"]',
        "give one for each of engine.servers.replicas",
    ),
    ("engine.kv_cache_tokens=199", "a single trajectory may have rollout.max_tokens of 200"),
    ("learning.share_prefixes=true model.gradient_checkpointing=true", ONCE),
    (
        "learning.share_prefixes=true cluster.learners=2 cluster.sequence_ranks=2",
        needs(Need.WHOLE_ROWS, "cluster.sequence_ranks = 2"),
    ),
    ("rollout.routing_replay=true model.gradient_checkpointing=true", ONCE),
    (
        "rollout.routing_replay=true learning.share_prefixes=true",
        needs(Need.PLAIN_ROWS, "learning.share_prefixes"),
    ),
    (
        "model.offload_activations=true",
        needs(Need.INPUTS_KEPT, "model.gradient_checkpointing = false"),
    ),
    (
        "rollout.context=drop preferences.steps=1 rollout.max_turn_tokens=9",
        "preferences.steps needs episodes of one context each, and rollout.context = 'drop' lets",
    ),
    ("preferences.steps=1 train.group_size=1", "preferences are learned from pairs of one group"),
    ("rollout.temperature=0", "all trajectories of a group would be the same"),
    ("rollout.temperature=0 train.steps=0 preferences.steps=1", "of a group would be the same"),
    ("rollout.context=drop rollout.max_turn_tokens=64", "raise one or lower the other"),
    ("rollout.max_turns=4 sft.demonstrations.turns=5", "rollout.max_turns = 4: lower the one"),
    ("rollout.max_turns=4 rollout.horizon.turns=4", "is not below rollout.max_turns = 4"),
    (
        "rollout.temperature_schedule={temperature=0.5,from_step=9,to_step=9}",
        "which is not after from_step = 9",
    ),
    ("evaluation.sft=true sft.steps=0 train.steps=0", "and this one makes none"),
    (
        "evaluation.during_rl={every=3,keep_best=true} train.checkpoint_every=2",
        "a multiple of train.checkpoint_every = 2",
    ),
    (
        "evaluation.during_rl={every=3} train.checkpoint_every=2 monitor.echo_trap=roll_back",
        "roll_back needs a checkpoint of each step that is evaluated",
    ),
]
"""Overrides of a recipe, and what its one line has at its heart."""


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    return str(path)


@pytest.mark.parametrize(("overrides", "message"), marked(UNWRITABLE + CONTRADICTIONS))
def test_what_does_not_go_together_is_refused_in_one_line(
    recipe: str, overrides: str, message: str
) -> None:
    load_recipe(recipe)
    with pytest.raises(ConfigError, match=message) as caught:
        load_recipe(recipe, overrides.split())
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{recipe}: ")


@pytest.mark.wing("gateway")
@pytest.mark.wing("cluster")
@pytest.mark.wing("judges")
@pytest.mark.wing("vllm")
def test_no_contradiction_is_without_a_case(recipe: str) -> None:
    """Every sentence of the validators, those of single sections and those between them."""
    messages = []
    for overrides, _ in CONTRADICTIONS:
        with pytest.raises(ConfigError) as caught:
            load_recipe(recipe, overrides.split())
        messages.append(str(caught.value))
    modules = (bounds, engine, rollout, import_module("turnwise_judges.settings"))
    expected = [words for module in modules for words in texts(module)]
    assert len(expected) > 10
    missing = [words for words in expected if not any(words in message for message in messages)]
    assert missing == []


def is_of_recipes(node: ast.AST) -> bool:
    """Functions, but for those that look at a new run's folder or at an evaluation."""
    others = ("check_new_run", "check_sources", "for_evaluation")
    return isinstance(node, ast.FunctionDef) and node.name not in others


def texts(module: ModuleType) -> Iterator[str]:
    """The longest unchanging text of every sentence that a module yields or raises about a recipe
    alone."""
    functions = filter(is_of_recipes, ast.walk(ast.parse(inspect.getsource(module))))
    for node in (node for function in functions for node in ast.walk(function)):
        if isinstance(node, ast.Raise | ast.Yield) and "Claim(" not in ast.unparse(node):
            inside = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
            yield max((text for text in inside if isinstance(text, str)), key=len, default="")

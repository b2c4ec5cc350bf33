"""What does not go together: most of it cannot be written, the rest is one sentence at loading."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from turnwise.config import contradictions, engine, judge, load_recipe, rollout
from turnwise.errors import ConfigError

RECIPE = """
name = "x"
[environment]
name = "search"
[train]
steps = 1
checkpoint_every = 1
[rollout]
max_tokens = 200
"""
AHEAD = "train.max_staleness=1 engine.deterministic=false"

UNWRITABLE = [
    ("engine.servers.replicas=2", "engine.servers goes with engine.name = 'vllm', but that is 'em"),
    ("engine=vllm engine.deterministic=true", "engine.name = 'embedded', but that is 'vllm'"),
    ("engine=vllm engine.kv_cache_tokens=5", "engine.kv_cache_tokens goes with engine.name"),
    ("engine=vllm engine.options.n=1", "does not go with engine.name = 'vllm'"),
    ("engine=mine.py:Own engine.kv_cache_tokens=9", "engine.name = 'embedded', but that is 'mine"),
    (
        'engine=vllm engine.servers.urls=["http://localhost:1"] engine.servers.replicas=2',
        "engine.servers.replicas does not go with engine.servers.urls",
    ),
    ("agent=mine.py:run agent.sandbox=true", "agent.sandbox does not go with agent.run"),
    ("agent=remote", "agent.port is missing"),
    ("engine=openai engine.url=http://h/v1", "engine.model is missing"),
    ("engine=openai engine.kv_cache_tokens=9", "goes with engine.name = 'embedded', but that is"),
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
    ("evaluation.during_rl.keep_best=true", "evaluation.during_rl.every is missing"),
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
        "rollout.context = drop is for turnwise's own agent loop, and agent has its own",
    ),
    (
        "agent=mine.py:run engine=openai engine.url=http://h/v1 engine.model=m",
        "engine.name = 'openai' says words: leave agent out",
    ),
    (
        "engine=mine.py:Own cluster.samplers=2",
        "and engine.name is 'mine.py:Own': set engine=vllm, or leave cluster.samplers out",
    ),
    (
        "cluster.samplers=2 cluster.workers=2",
        "cluster.samplers = 2 starts servers of vLLM on a cluster's nodes, and engine.name is "
        "'embedded': set engine=vllm, or leave cluster.samplers out \\(cluster.learners and",
    ),
    (
        'engine=vllm engine.servers.urls=["http://localhost:1"] cluster.samplers=2',
        "and engine.servers.urls names some that run: leave one of them out",
    ),
    (
        "engine=vllm engine.servers.replicas=2 cluster.samplers=2",
        "Ray gives them their GPUs: leave engine.servers.replicas and engine.servers.devices out",
    ),
    (
        "engine=vllm engine.servers.gpus=1 cluster.samplers=2 cluster.colocated=true",
        "on the GPU of one learner: leave engine.servers.gpus out, or set cluster.colocated=false",
    ),
    (
        "engine=vllm engine.transport=ipc cluster.samplers=2",
        "reaches the first learner's own GPU alone, and cluster.samplers = 2 starts servers on",
    ),
    (
        'engine=vllm engine.servers.arguments=["--tensor-parallel-size","2"]',
        "engine.servers.arguments has --tensor-parallel-size: set engine.servers.gpus",
    ),
    (
        "engine=vllm cluster.colocated=true cluster.samplers=3 cluster.learners=2",
        "cluster.samplers = 3 cannot be divided among cluster.learners = 2: change one of them",
    ),
    (
        "cluster.colocated=true",
        "is about servers that sample, and engine.name is 'embedded': set engine=vllm, or leave it",
    ),
    (
        "agent=mine.py:run cluster.workers=2",
        "cluster.workers is 2, but episodes cannot leave the process of the run: an agent of your "
        "own talks to the gateway in it; set cluster.workers=0",
    ),
    (
        "reward.parts.judge=1 judge=pairwise cluster.workers=2",
        "judge of the reward ask a model that is there; set cluster.workers=0",
    ),
    (
        "reward.parts.entropy=1 cluster.workers=2",
        "entropy of the reward ask a model that is there; set cluster.workers=0",
    ),
    ("agent=remote agent.port=8123", "set engine.deterministic=false"),
    ("judge=pairwise", "nothing asks the judge: name it in reward.parts"),
    ("reward.parts.reward_model=1", r"describe one in \[reward_model\]"),
    (
        'reward_model.data=["a"] reward_model.beside_policy=true reward.parts.reward_model=1 '
        "evaluation.during_rl.every=10 evaluation.during_rl.keep_best=true",
        "with a later reward model: choose one",
    ),
    ('reward_model.data=["a"]', "nothing asks the reward model: name it in reward.parts"),
    ("evaluation.best_of=f1", "there is one: raise evaluation.episodes_per_task"),
    ("preferences.by=judge preferences.steps=1", r"describe one in \[judge\]"),
    ("judge.seconds=300 reward.parts.judge=1", "rollout.max_seconds = 120: lower the one or raise"),
    ("judge.low=3 judge.high=3 reward.parts.judge=1", "give a low below the high"),
    ("judge.model=scripted judge.refinement.requests=2", "refinement out, or set judge.model=pol"),
    ("judge=rubric judge.refinement.requests=2", "set judge.form to pairwise or pointwise, or"),
    (
        "judge.refinement.requests=2 train.steps=0 reward.parts.judge=1",
        "train.steps is 0: leave refinement out",
    ),
    ("judge.cache=kept reward.parts.judge=1", "leave cache out, or name another model"),
    ("train.max_staleness=1", "lockstep.* set engine.deterministic=false, or train.max_stale"),
    ("train.oversample=1", "lockstep.* set engine.deterministic=false, or train.oversample=0"),
    (f"{AHEAD} curriculum=by_success", "by all steps before it: set train.max_staleness=0, or le"),
    (f"{AHEAD} monitor.echo_trap=roll_back", "was sampled after them: set train.max_staleness=0"),
    (f"{AHEAD} evaluation.during_rl.every=1", "evaluation.during_rl pauses sampling: set train.m"),
    (
        "engine=vllm cluster.colocated=true train.max_staleness=1",
        "cluster.colocated lets learners and servers take turns: set train.max_staleness=0",
    ),
    (
        "engine=vllm rollout.top_p=0.9 rollout.min_p=0.1",
        "set rollout.top_p or rollout.min_p, not both",
    ),
    (
        "engine=vllm engine.in_flight=true",
        "train.max_staleness=0 no turn is under way then: set engi",
    ),
    (
        "engine=vllm engine.in_flight=true cluster.colocated=true",
        "servers that are colocated sleep while weights change: set engine.in_flight=false",
    ),
    (
        "engine=vllm engine.in_flight=true engine.transport=adapters model.lora_rank=4 "
        "train.max_staleness=1",
        "a turn keeps the adapters that it began with: set engine.in_flight=false",
    ),
    (
        "engine=vllm engine.transport=nccl cluster.colocated=true",
        "colocated servers are on the learner's own: set engine.transport=ipc",
    ),
    ("engine=vllm engine.transport=adapters", "set model.lora_rank, or engine.transport=files"),
    (
        "engine=vllm engine.transport=adapters cluster.colocated=true model.lora_rank=4",
        "adapters are sent without it: set engine.transport=files",
    ),
    (
        'engine=vllm engine.servers.replicas=2 engine.servers.devices=["0"]',
        "give one for each of engine.servers.replicas",
    ),
    ("engine.kv_cache_tokens=199", "a single trajectory may have rollout.max_tokens of 200"),
    (
        "learning.share_prefixes=true model.gradient_checkpointing=true",
        "exclude each other: set one of them to false",
    ),
    (
        "learning.share_prefixes=true cluster.learners=2 cluster.sequence_ranks=2",
        "computes rows in slices: set learning.share_prefixes=false or cluster.sequence_ranks=1",
    ),
    (
        "rollout.routing_replay=true model.gradient_checkpointing=true",
        "computes layers again, with experts of their own choice: leave one of the two out",
    ),
    (
        "rollout.routing_replay=true learning.share_prefixes=true",
        "learning.share_prefixes computes trees of tokens",
    ),
    (
        "model.offload_activations=true",
        "set model.gradient_checkpointing=true, or leave the one out",
    ),
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


@pytest.mark.parametrize(("overrides", "message"), [*UNWRITABLE, *CONTRADICTIONS])
def test_what_does_not_go_together_is_refused_in_one_line(
    recipe: str, overrides: str, message: str
) -> None:
    load_recipe(recipe)
    with pytest.raises(ConfigError, match=message) as caught:
        load_recipe(recipe, overrides.split())
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{recipe}: ")


def test_no_contradiction_is_without_a_case(recipe: str) -> None:
    """Every sentence of the validators, those of single sections and those between them."""
    messages = []
    for overrides, _ in CONTRADICTIONS:
        with pytest.raises(ConfigError) as caught:
            load_recipe(recipe, overrides.split())
        messages.append(str(caught.value))
    expected = [
        words for module in (contradictions, engine, judge, rollout) for words in texts(module)
    ]
    assert len(expected) > 10
    missing = [words for words in expected if not any(words in message for message in messages)]
    assert missing == []


def texts(module: ModuleType) -> Iterator[str]:
    """The longest unchanging text of every sentence that a module yields or raises."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Raise | ast.Yield):
            inside = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
            yield max((text for text in inside if isinstance(text, str)), key=len)

"""What `engine.py` measures. Not here: the command, tables and files; sampling alone
(`sampling.py`)."""

import asyncio
import ctypes
import functools
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from turnwise.algorithms import make_algorithm
from turnwise.config import LearningConfig, ModelConfig, SftConfig
from turnwise.engines.base import Sampling
from turnwise.engines.embedded import EmbeddedEngine
from turnwise.forward.logprobs import token_logprobs
from turnwise.learning.batch import policy_examples
from turnwise.learning.credits import Credits, estimate
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.sft import SupervisedLearner
from turnwise.learning.shared_prefixes import build_prefix_trees
from turnwise.learning.signals.base import Signals
from turnwise.models.load import load_tokenizer
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Group, Outcome, Task, Trajectory, Verdict

VOCABULARY = 2048
SHAPES = {"1M": (128, 4, 384), "5M": (256, 5, 768), "20M": (512, 6, 1408)}
"""Width, layers, inner width; heads have 32 numbers, and the embeddings are tied."""
PROMPT = 32
EPISODES, TURN, OBSERVATION = 8, 16, 16
STEP_SEQUENCES, STEP_LENGTH = 64, 256
MATRIX = 2048
GROUPS, MEMBERS, SHARED, OWN = 8, 8, 160, 96
"""Groups of a policy update, their trajectories, and the tokens of prompt and answer."""
VOCABULARIES = (2_048, 32_768, 151_936)
SCORED = 8192
"""Tokens of the log-probability pass: of a micro-batch, by default."""

Rounds = dict[str, list[float]]


def sessions(arguments: Namespace) -> list[dict[str, Any]]:
    """Seconds of episodes with a session, and of the same ones prefilled anew every turn."""
    size = arguments.sizes[0]
    model = random_model(size)
    prompts = np.random.default_rng(0).integers(3, VOCABULARY, (EPISODES, PROMPT)).tolist()
    rows = []
    for count in arguments.turns:
        computed: dict[str, int] = {}

        def play(name: str, count: int = count, computed: dict[str, int] = computed) -> None:
            keep = name == "sessions"
            computed[name] = asyncio.run(turns(model, prompts, count, TURN, keep))

        seconds = alternate(
            {name: lambda name=name, play=play: play(name) for name in ("sessions", "prefilling")},
            arguments.rounds,
        )
        medians = {f"{name}, s": round(statistics.median(t), 3) for name, t in seconds.items()}
        tokens = {f"{name}, tokens": computed[name] for name in seconds}
        faster = ratio(seconds["prefilling"], seconds["sessions"])
        rows.append({"turns": count, **medians, **tokens, "faster": faster, "seconds": [seconds]})
    return rows


async def turns(
    model: PreTrainedModel, prompts: list[list[int]], count: int, new: int, keep: bool
) -> int:
    """Episodes of `count` turns of `new` tokens each; returns the tokens that were computed."""
    longest = PROMPT + count * (new + OBSERVATION)
    engine = EmbeddedEngine(
        model,
        endless_tokenizer(),
        max_sequences=len(prompts),
        max_tokens=longest,
        deterministic=True,
    )

    async def episode(index: int) -> None:
        history = list(prompts[index])
        for turn in range(count):
            sampling = Sampling(max_tokens=new, seed=1000 * index + turn)
            completion = await engine.generate(history, sampling, session=str(index))
            history += [*completion.tokens, *prompts[index][:OBSERVATION]]
            if not keep:
                engine.close(str(index))
                engine.open(str(index))
        engine.close(str(index))

    for index in range(len(prompts)):
        engine.open(str(index))
    await asyncio.gather(*(episode(index) for index in range(len(prompts))))
    await engine.stop()
    expect(engine.counters.sampled, len(prompts) * count * new)
    return engine.counters.computed


def training(arguments: Namespace) -> list[dict[str, Any]]:
    """Tokens per second of a supervised step, and its share of the matrix product's rate, counting
    6 operations for each parameter and token."""
    rows = []
    for size in arguments.sizes:
        for autocast in (False, True):
            learner = supervised(random_model(size), autocast, arguments.rounds + 1)
            product = matrix_product(torch.bfloat16 if autocast else torch.float32)
            seconds = alternate({"step": learner.step, "product": product}, arguments.rounds)
            count = learner.model.num_parameters()
            work = 6 * count * STEP_SEQUENCES * STEP_LENGTH
            share = [
                work / step / (2 * MATRIX**3 / product)
                for step, product in zip(seconds["step"], seconds["product"], strict=True)
            ]
            step = statistics.median(seconds["step"])
            product_rate = 2 * MATRIX**3 / statistics.median(seconds["product"])
            rows.append(
                {
                    "size": parameters(learner.model),
                    "type": "bfloat16 autocast" if autocast else "float32",
                    "tokens/s": round(STEP_SEQUENCES * STEP_LENGTH / step),
                    "GFLOP/s": round(work / step / 1e9),
                    "product, GFLOP/s": round(product_rate / 1e9),
                    "share": spread(share),
                    "seconds": [seconds],
                }
            )
    return rows


def supervised(model: PreTrainedModel, autocast: bool, steps: int) -> SupervisedLearner:
    """A learner whose every step has the same number of tokens, all of them trained but the first
    of each sequence."""
    ids = np.random.default_rng(0).integers(3, VOCABULARY, (STEP_SEQUENCES, STEP_LENGTH + 1))
    demonstrations = []
    for row in ids.tolist():
        tokens = Tokens.empty()
        tokens = tokens.with_segments([Segment(tuple(row[:1]), Source.USER)], turn=0)
        tokens = tokens.with_sampled(row[1:], [0.0] * STEP_LENGTH, 0, turn=0)
        demonstrations.append(tokens)
    config = SftConfig(steps=steps, batch_size=STEP_SEQUENCES)
    learning = LearningConfig(compute_dtype="bfloat16" if autocast else "auto")
    return SupervisedLearner(model, demonstrations, config, learning, seed=0)


def sharing(arguments: Namespace) -> list[dict[str, Any]]:
    """Seconds of a policy update whose groups share their prompts, computed once and each time;
    beside it the ratio of the multiplications."""
    rows = []
    algorithm = make_algorithm("grpo", {})
    for size in arguments.sizes:
        groups = played_groups()
        credits = estimate(groups, Signals(), algorithm)
        learners = {
            name: PolicyLearner(
                random_model(size), None, LearningConfig(share_prefixes=name == "trees"), algorithm
            )
            for name in ("alone", "trees")
        }
        seconds = alternate(
            {name: partial(learner.update, groups, credits) for name, learner in learners.items()},
            arguments.rounds,
        )
        counts = counted_work(groups, credits, size)
        alone, trees = (update_work(size, *count) for count in counts)
        medians = {f"{name}, s": round(statistics.median(t), 3) for name, t in seconds.items()}
        rows.append(
            {
                "size": parameters(learners["trees"].model),
                "tokens alone": counts[0][0],
                "tokens in trees": counts[1][0],
                **medians,
                "arithmetic": round(alone / trees, 2),
                "faster": ratio(seconds["alone"], seconds["trees"]),
                "seconds": [seconds],
            }
        )
    return rows


def counted_work(groups: list[Group], credits: Credits, size: str) -> list[tuple[int, ...]]:
    """Of the sequences by themselves and of the trees: tokens, pairs of tokens that attend, and of
    both those of tokens that predict a trained one."""
    examples = policy_examples(groups, credits, make_algorithm("grpo", {}), True)
    lengths = [len(example.ids) - 1 for example in examples]
    shared, others = build_prefix_trees(
        examples, SHAPES[size][0], LearningConfig().tokens_per_micro_batch
    )
    if others:
        raise SystemExit("some groups would not be computed as trees")
    asked = [int(place) for example in examples for place in np.flatnonzero(example.trained)]
    last = len(asked), sum(asked)
    alone = sum(lengths), sum(length * (length + 1) // 2 for length in lengths)
    tokens = sum(len(tree.ids) for _, tree in shared)
    pairs = sum(run.pairs for _, tree in shared for run in tree.runs())
    return [(*alone, *last), (tokens, pairs, *last)]


def update_work(size: str, tokens: int, pairs: int, asked: int, asked_pairs: int) -> int:
    """Multiplications of a forward pass. Past the keys and values of the last layer only tokens
    that are asked for go on; they alone have logits, and no trees."""
    width, layers, inner = SHAPES[size]
    rest = width**2 + 3 * width * inner
    full = tokens * (3 * width**2 + rest) + pairs * 2 * width
    last = tokens * 3 * width**2 + asked * rest + asked_pairs * 2 * width
    return (layers - 1) * full + last + asked * width * VOCABULARY


def played_groups() -> list[Group]:
    """Trajectories that share a prompt and nothing more, half of them rewarded."""
    generator = np.random.default_rng(0)
    groups = []
    for number in range(GROUPS):
        prompt = generator.integers(3, VOCABULARY, SHARED).tolist()
        name, members = f"g{number}", []
        for episode in range(MEMBERS):
            tokens = Tokens.empty()
            tokens = tokens.with_segments([Segment(prompt, Source.USER)], turn=0)
            words = generator.integers(3, VOCABULARY, OWN).tolist()
            tokens = tokens.with_sampled(words, [-7.0] * OWN, 0, turn=0)
            reward = float(episode % 2)
            members.append(
                Trajectory(
                    task=Task(name, "question"),
                    group=name,
                    episode=episode,
                    seed=0,
                    tokens=tokens,
                    outcome=Outcome.SUCCESS,
                    verdict=Verdict(reward, reward > 0),
                )
            )
        groups.append(Group(name, tuple(members)))
    return groups


def matrix_product(dtype: torch.dtype) -> Callable[[], object]:
    """A large square product."""
    left, right = torch.randn(2, MATRIX, MATRIX).to(dtype)
    return lambda: left @ right


def memory(arguments: Namespace) -> list[dict[str, Any]]:
    """Megabytes that a log-probability pass with its gradient needs, each in a fresh process."""
    rows = []
    for vocabulary in VOCABULARIES:
        code = f"import engine_measurements as m; print(m.peak_memory({vocabulary}))"
        command = [sys.executable, "-c", code]
        here = Path(__file__).parent
        needed = subprocess.run(command, cwd=here, capture_output=True, check=True).stdout
        rows.append(
            {
                "vocabulary": vocabulary,
                "pass, MB": round(int(needed) / 1e6),
                "all logits once, MB": round(SCORED * vocabulary * 4 / 1e6),
            }
        )
    return rows


def peak_memory(vocabulary: int) -> int:
    """Bytes beyond the model, its gradients and their like in one step of the backward pass."""
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=32,
    )
    model = Qwen3ForCausalLM(config)
    weights = 4 * model.lm_head.weight.numel()

    def differentiate(rows: int) -> None:
        inputs = torch.arange(rows * 256).view(rows, 256) % vocabulary
        selected = torch.ones_like(inputs, dtype=torch.bool)
        logprobs, _ = token_logprobs(model, inputs, selected, inputs.flatten(), 1.0, False)
        torch.autograd.backward(logprobs.sum())

    needed = []
    for _ in range(3):  # at first the libraries take what they keep
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = resident("VmRSS")
        differentiate(SCORED // 256)
        needed.append(resident("VmHWM") - before)
    return min(needed[1:]) - weights


def resident(field: str) -> int:
    """Bytes of memory in use now (VmRSS), or at most since it was last reset (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def smollm2_config(**others: Any) -> LlamaConfig:
    """The shape of SmolLM2-135M, with other settings."""
    return LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1_536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        **others,
    )


def smollm2() -> PreTrainedModel:
    """A Llama with the shape of SmolLM2-135M, without an end of text."""
    torch.manual_seed(0)
    config = smollm2_config(
        max_position_embeddings=8_192, tie_word_embeddings=True, eos_token_id=None
    )
    return LlamaForCausalLM(config).eval()


def random_model(size: str) -> PreTrainedModel:
    """A Qwen3 of that size, without an end of text; "135M" is a Llama of SmolLM2's shape."""
    if size == "135M":
        return smollm2()
    width, layers, inner = SHAPES[size]
    torch.manual_seed(0)
    model: PreTrainedModel = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=width,
            intermediate_size=inner,
            num_hidden_layers=layers,
            num_attention_heads=width // 32,
            num_key_value_heads=width // 32,
            head_dim=32,
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
    )
    return model.eval()


@functools.cache
def endless_tokenizer() -> PreTrainedTokenizerBase:
    """A tokenizer without an end of text."""
    tokenizer = load_tokenizer(ModelConfig())
    tokenizer.eos_token = None
    return tokenizer


def parameters(model: torch.nn.Module) -> str:
    """Such as 4.8M."""
    return f"{sum(weight.numel() for weight in model.parameters()) / 1e6:.1f}M"


def alternate(contenders: Mapping[str, Callable[[], object]], rounds: int) -> Rounds:
    """Seconds of each in each round, after one round that does not count; who is first changes."""
    names = list(contenders)
    seconds: Rounds = {name: [] for name in names}
    for index in range(rounds + 1):
        turn = index % len(names)
        for name in names[turn:] + names[:turn]:
            start = time.perf_counter()
            contenders[name]()
            if index:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(slower: list[float], faster: list[float]) -> str:
    """How much faster, round by round."""
    return spread([a / b for a, b in zip(slower, faster, strict=True)])


def spread(values: list[float]) -> str:
    """Median (lowest - highest)."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} – {max(values):.2f})"


def expect(found: int, wanted: int) -> None:
    """Contenders must have done the same work."""
    if found != wanted:
        raise SystemExit(f"{found} tokens were sampled where {wanted} were to be")

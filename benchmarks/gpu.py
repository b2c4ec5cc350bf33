"""The embedded engine and the policy update on one GPU: `python benchmarks/gpu.py`.

    python benchmarks/gpu.py --shape 0.6B 4B --json runs/gpu.json
    python benchmarks/gpu.py --shape tiny --device cpu --type float32 --sequences 4 --new 16
    python benchmarks/gpu.py --shape 4B --parts sampling vllm --vllm ~/vllm/bin/python

Models have Qwen3's shapes and random weights, so nothing is loaded. `correctness`: what the engine
says of the tokens that it samples, against a forward pass over the whole text in float32, with the
same weights: in that type, and in float32, where a difference above 1e-4 is an error; caches are
evicted and weights replaced on the way. `demo`: the demo's recipe to its end, once, beside its
expected runs. `sampling`: episodes of several turns, tokens a second. `generate`: one such turn by
transformers.
`training`: policy updates on float32 weights in bfloat16 autocast, or on weights of the type with
`--pure`; the share is that of the rate of one large matrix product in bfloat16, measured here.
`step`: both, one after the other, as a training run has them; `lora`: the same with adapters alone
on weights of the type. `vllm`, which has to be named: the episodes of `sampling` on a server of
vLLM (`gpu_vllm.py`). Memory is the most that PyTorch had allocated on the GPU; on a CPU the most
that the process ever had. A part that does not fit in the GPU's free memory, runs out of it or is
wrong is told, and the others run. `--json` is written after each part.
"""

import argparse
import asyncio
import gc
import json
import math
import os
import resource
import statistics
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_peers

from turnwise.threads import configure_threads

SHAPES = {
    "tiny": (64, 2, 4, 2, 32, 128, 1024, True),
    "0.6B": (1024, 28, 16, 8, 128, 3072, 151_936, True),
    "1.7B": (2048, 28, 16, 8, 128, 6144, 151_936, True),
    "4B": (2560, 36, 32, 8, 128, 9728, 151_936, True),
    "8B": (4096, 36, 32, 8, 128, 12_288, 151_936, False),
}
"""Width, layers, heads, key heads, head size, inner width, vocabulary, tied embeddings: Qwen3's."""
PARTS = ("correctness", "demo", "sampling", "generate", "training", "step", "lora")
RANK = 16
PROMPT, OBSERVATION = 64, 32
"""Tokens before the first turn, and between two."""
GROUP = 8
MATRIX = 8192
EXACT = 1e-4
"""How far log-probabilities of the engine may be from those of a full pass, both in float32."""


class WrongError(Exception):
    """Figures of a part that mean nothing; the parts after it run."""


def main() -> None:
    """Measure what was asked for, print it, write it. Exits with 1 if a part was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=["0.6B"])
    parser.add_argument("--parts", nargs="+", choices=(*PARTS, "vllm"), default=list(PARTS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--type", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--pure", action="store_true", help="train weights of the type itself")
    parser.add_argument("--sequences", type=int, default=64, help="a multiple of 8 to train on")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--new", type=int, default=128, help="tokens sampled in a turn")
    parser.add_argument("--micro-batch", type=int, default=16_384, help="tokens")
    parser.add_argument("--checkpointing", action="store_true", help="of activations")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vllm", metavar="PYTHON", help="an interpreter that has vLLM")
    parser.add_argument("--transport", choices=("files", "nccl", "ipc"), default="files")
    parser.add_argument("--server-gpu", default="", help="CUDA_VISIBLE_DEVICES of the server")
    parser.add_argument(
        "--server-options", default="", help="such as --server-options=--enforce-eager"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    configure_threads(arguments.threads)
    import torch

    if arguments.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("there is no GPU: try --device cpu --shape tiny")
    if "vllm" in arguments.parts and not arguments.vllm:
        parser.error("--parts vllm is for an environment that has it: give --vllm its interpreter")
    gpu = arguments.device.startswith("cuda")
    name = torch.cuda.get_device_name(arguments.device) if gpu else "CPU"
    figures: dict[str, Any] = {"device": name, "torch": torch.__version__}
    print(f"{name} · torch {torch.__version__} · {arguments.type}", flush=True)
    for shape in arguments.shape:
        figures[shape] = {}
        for part in arguments.parts:
            if part == "demo" and shape != arguments.shape[0]:
                continue  # it has a model of its own
            figures[shape][part] = fitting(arguments, shape, part)
            release(arguments)
            told = " · ".join(f"{key} {value}" for key, value in figures[shape][part].items())
            print(f"{shape} {part}: {told}", flush=True)
            if arguments.json:
                arguments.json.parent.mkdir(parents=True, exist_ok=True)
                arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    wrong = [
        f"{shape} {part}: {found['wrong']}"
        for shape in arguments.shape
        for part, found in figures[shape].items()
        if "wrong" in found
    ]
    if wrong:
        raise SystemExit("; ".join(wrong))


def fitting(arguments: Namespace, shape: str, part: str) -> dict[str, Any]:
    """The figures of a part, or why the device's memory is too small for it."""
    import torch

    least, free = needed(arguments, shape, part), free_memory(arguments.device)
    if least > free:
        return {
            "left out": f"it needs at least {least / 1e9:.3g} GB for its weights, and "
            f"{free / 1e9:.3g} GB are free"
        }
    try:
        found: dict[str, Any] = globals()[part](arguments, shape)
    except torch.OutOfMemoryError as error:
        return {"out of memory": str(error).partition(". GPU")[0]}
    except WrongError as error:
        return {"wrong": str(error)}
    return found


def needed(arguments: Namespace, shape: str, part: str) -> int:
    """Bytes without which a part cannot be: of weights, which are made in float32, two models in
    `correctness`; of gradients, AdamW's two moments, and weights in float32 beside others."""
    width, layers, heads, key_heads, head, inner, vocabulary, tied = SHAPES[shape]
    layer = head * (2 * heads + 2 * key_heads) * width + 3 * width * inner
    count = layers * layer + vocabulary * width * (1 if tied else 2)
    if part in ("training", "step"):
        return count * (18 if arguments.pure and arguments.type == "bfloat16" else 16)
    return count * (8 if part == "correctness" else 4)


def free_memory(device: str) -> float:
    """Bytes that are free on a GPU; a CPU's are not counted."""
    import torch

    return torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else math.inf


def release(arguments: Namespace) -> None:
    """Give back to the device what is not used any more; a stopped engine is in circles."""
    import torch

    gc.collect()
    if arguments.device.startswith("cuda"):
        torch.cuda.empty_cache()


def correctness(arguments: Namespace, shape: str) -> dict[str, Any]:
    """Largest and mean difference of log-probabilities from those of a full float32 pass."""
    found: dict[str, Any] = {}
    for kind in dict.fromkeys(("float32", arguments.type)):
        played, evictions = swapped(arguments, shape, kind)
        versions = {version for _, sampled in played for _, _, version in sampled}
        if versions != {0, 1}:
            raise WrongError(f"sampled with versions {versions}: give more --new tokens")
        differences = compared(played, shape, kind, arguments)
        largest = max(differences)
        found |= {
            f"{kind} largest": f"{largest:.1e}",
            f"{kind} mean": f"{statistics.mean(differences):.1e}",
            f"{kind} evictions": evictions,
        }
        if kind == "float32" and largest > EXACT:
            raise WrongError(f"the engine is off by {largest:.1e} in float32")
    return found


def swapped(
    arguments: Namespace, shape: str, kind: str
) -> tuple[list[tuple[list[int], list[tuple[int, float, int]]]], int]:
    """What `play` returns of a model that another replaces; neither is kept."""
    model, other = (random_model(shape, kind, arguments.device, seed) for seed in (0, 1))
    tokens = 3 * longest(arguments, 2) // 2
    return asyncio.run(play(model, arguments, turns=2, kv_cache_tokens=tokens, swap=other))


def compared(
    played: list[tuple[list[int], list[tuple[int, float, int]]]],
    shape: str,
    kind: str,
    arguments: Namespace,
) -> list[float]:
    """Of every sampled token the difference to a full pass of the version that sampled it."""
    import torch

    differences = []
    for version in (0, 1):
        model = None  # the one before
        release(arguments)
        model = random_model(shape, kind, arguments.device, version).float()
        for history, sampled in played:
            with torch.no_grad():
                ids = torch.tensor([history], device=model.device)
                logits = model(input_ids=ids, use_cache=False).logits[0]
            for place, logprob, of in sampled:
                if of == version:
                    expected = logits[place - 1].log_softmax(-1)[history[place]]
                    differences.append(abs(float(expected) - logprob))
    return differences


def sampling(arguments: Namespace, shape: str) -> dict[str, Any]:
    """Tokens a second, those of the prompts not counted."""
    model = random_model(shape, arguments.type, arguments.device)

    def once() -> None:
        asyncio.run(play(model, arguments, arguments.turns))

    seconds, memory = timed(once, arguments)
    tokens = arguments.sequences * arguments.turns * arguments.new
    return {"parameters": size(model), "tokens/s": round(tokens / seconds), **memory}


def demo(arguments: Namespace, shape: str) -> dict[str, Any]:
    """Whether the demo's recipe comes to what it comes to elsewhere; `shape` is not its model's."""
    del shape
    found = gpu_peers.demo(arguments.device)
    if "failed" in found or found.get("within its band") is False:
        raise WrongError(f"the demo is not as elsewhere: {found}")
    return found


def generate(arguments: Namespace, shape: str) -> dict[str, Any]:
    """Tokens a second of transformers, of one turn of as many sequences as in `sampling`."""
    model = random_model(shape, arguments.type, arguments.device)
    sizes = arguments.sequences, PROMPT, arguments.new
    seconds, memory = timed(lambda: gpu_peers.generate(model, *sizes), arguments)
    return {"tokens/s": round(arguments.sequences * arguments.new / seconds), **memory}


def training(arguments: Namespace, shape: str) -> dict[str, Any]:
    """Tokens a second of policy updates, and what share that is of a matrix product's rate."""
    import torch

    groups, learner = groups_and_learner(arguments, shape)
    tokens = sum(len(m.tokens) - 1 for group in groups for m in group.trajectories)
    seconds, memory = timed(lambda: updated(learner, groups), arguments)
    width = 512 if shape == "tiny" else MATRIX
    matrix = torch.randn(width, width, device=arguments.device, dtype=torch.bfloat16)
    product, _ = timed(lambda: matrix @ matrix, arguments)
    model = learner.model
    embedding = 0 if SHAPES[shape][-1] else model.get_input_embeddings().weight.numel()
    work = 6 * (sum(p.numel() for p in model.parameters()) - embedding) * tokens
    return {
        "tokens/s": round(tokens / seconds),
        "TFLOP/s": f"{work / seconds / 1e12:.3g}",
        "product, TFLOP/s": f"{2 * width**3 / product / 1e12:.3g}",
        "share": round(work / seconds * product / (2 * width**3), 2),
        **memory,
    }


def step(arguments: Namespace, shape: str, rank: int = 0) -> dict[str, Any]:
    """Seconds of a rollout and of the update after it, on one copy of the weights."""
    groups, learner = groups_and_learner(arguments, shape, rank)
    rollout, _ = timed(lambda: asyncio.run(play(learner.model, arguments, 1)), arguments)
    update, memory = timed(lambda: updated(learner, groups), arguments)
    return {"rollout, s": round(rollout, 3), "update, s": round(update, 3), **memory}


def lora(arguments: Namespace, shape: str) -> dict[str, Any]:
    """Seconds of a step that trains adapters alone."""
    return {"rank": RANK, **step(arguments, shape, RANK)}


def vllm(arguments: Namespace, shape: str) -> dict[str, Any]:
    """A server of vLLM in place of the engine."""
    from gpu_vllm import measured

    return measured(arguments, random_model(shape, arguments.type, arguments.device))


async def play(
    model: Any,
    arguments: Namespace,
    turns: int,
    kv_cache_tokens: int | None = None,
    swap: Any = None,
) -> tuple[list[tuple[list[int], list[tuple[int, float, int]]]], int]:
    """Episodes, in groups with one prompt: of each its tokens, and for every sampled one its place,
    log-probability and version; and how often a session lost its cache. With `swap` the weights
    are replaced once half of the tokens of the first turn are there."""
    from engine_measurements import endless_tokenizer

    from turnwise.engines.embedded import EmbeddedEngine

    engine = EmbeddedEngine(
        model,
        endless_tokenizer(),
        max_sequences=arguments.sequences,
        max_tokens=longest(arguments, turns),
        deterministic=False,
        kv_cache_tokens=kv_cache_tokens,
    )

    async def replaced() -> None:
        while engine.counters.sampled < arguments.new // 2:
            await asyncio.sleep(0)
        await engine.load_weights(dict(swap.state_dict()), 1)

    beside = [replaced()] if swap is not None else []
    found, *_ = await asyncio.gather(episodes(engine, model, arguments, turns), *beside)
    await engine.stop()
    return found, engine.evictions


def longest(arguments: Namespace, turns: int) -> int:
    """Tokens of an episode."""
    return PROMPT + turns * (arguments.new + OBSERVATION)


async def episodes(
    engine: Any, model: Any, arguments: Namespace, turns: int
) -> list[tuple[list[int], list[tuple[int, float, int]]]]:
    """Episodes through an engine, in groups with one prompt, as `play` returns them."""
    import numpy as np

    from turnwise.engines.base import Sampling

    generator, count = np.random.default_rng(0), arguments.sequences
    size = (-(-count // GROUP), PROMPT)
    prompts = generator.integers(3, model.config.vocab_size, size).tolist()

    async def episode(index: int) -> tuple[list[int], list[tuple[int, float, int]]]:
        history, sampled = list(prompts[index // GROUP]), []
        engine.open(str(index))
        for turn in range(turns):
            sampling = Sampling(max_tokens=arguments.new, seed=1000 * index + turn)
            completion = await engine.generate(history, sampling, session=str(index))
            versions = np.broadcast_to(completion.version, len(completion.tokens)).tolist()
            places = range(len(history), len(history) + len(completion.tokens))
            sampled += list(zip(places, completion.logprobs, versions, strict=True))
            history += [*completion.tokens, *prompts[0][:OBSERVATION]]
        engine.close(str(index))
        return history, sampled

    return await asyncio.gather(*map(episode, range(count)))


def groups_and_learner(arguments: Namespace, shape: str, rank: int = 0) -> tuple[list[Any], Any]:
    """Trajectories as one turn of `play` makes them, and a learner of all weights or of adapters of
    that rank."""
    import numpy as np

    from turnwise.algorithms import make_algorithm
    from turnwise.config import LearningConfig
    from turnwise.forward.attention import recompute_layers
    from turnwise.learning.policy import PolicyLearner
    from turnwise.tokens import Segment, Source, Tokens
    from turnwise.types import Group, Outcome, Task, Trajectory, Verdict

    kind = arguments.type if arguments.pure or rank else "float32"
    model = random_model(shape, kind, arguments.device)
    if rank:
        model = with_adapters(model, rank)
    if arguments.checkpointing:
        recompute_layers(model)
    generator, vocabulary = np.random.default_rng(0), model.config.vocab_size
    groups = []
    for number in range(max(1, arguments.sequences // GROUP)):
        name, members = f"g{number}", []
        for index in range(GROUP):
            tokens = Tokens.empty()
            prompt = generator.integers(3, vocabulary, PROMPT).tolist()
            tokens = tokens.with_segments([Segment(prompt, Source.USER)], turn=0)
            words = generator.integers(3, vocabulary, arguments.new * arguments.turns).tolist()
            tokens = tokens.with_sampled(words, [-7.0] * len(words), 0, turn=0)
            reward, task = float(index % 2), Task(name, "question")
            judged = Outcome.SUCCESS, Verdict(reward, reward > 0)
            members.append(Trajectory(task, name, index, 0, tokens, (), *judged))
        groups.append(Group(name, tuple(members)))
    lower = kind == "float32" and arguments.type == "bfloat16"
    config = LearningConfig(
        compute_dtype="bfloat16" if lower else "auto",
        tokens_per_micro_batch=arguments.micro_batch,
    )
    return groups, PolicyLearner(model, None, config, make_algorithm("grpo", {}))


def with_adapters(model: Any, rank: int) -> Any:
    """The model with adapters in its layers, which alone are trained."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    return get_peft_model(model, config).get_base_model()


def updated(learner: Any, groups: list[Any]) -> None:
    """One policy update."""
    from turnwise.learning.credits import estimate
    from turnwise.learning.signals.base import Signals

    report = learner.update(groups, estimate(groups, Signals(), learner.algorithm))
    if report.problems:
        raise WrongError(report.problems[0])


def random_model(shape: str, kind: str, device: str, seed: int = 0) -> Any:
    """A Qwen3 of that shape, without an end of text."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    width, layers, heads, key_heads, head, inner, vocabulary, tied = SHAPES[shape]
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        head_dim=head,
        max_position_embeddings=40_960,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    torch.manual_seed(seed)
    with torch.device(device):
        model = Qwen3ForCausalLM(config)
    return model.to(getattr(torch, kind)).eval()


def timed(work: Callable[[], object], arguments: Namespace) -> tuple[float, dict[str, str]]:
    """Median seconds, after one round that does not count, and the memory it took."""
    import torch

    device, seconds = arguments.device, []
    gpu = device.startswith("cuda")
    if gpu:
        torch.cuda.reset_peak_memory_stats(device)
    for _ in range(arguments.rounds + 1):
        gc.collect()  # engines of the rounds before, and their caches
        if gpu:
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        work()
        if gpu:
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    if gpu:
        most, name = torch.cuda.max_memory_allocated(device), "memory, GB"
    else:
        most, name = (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "memory of the process, GB",
        )
    return statistics.median(seconds[1:]), {name: f"{most / 1e9:.2f}"}


def size(model: Any) -> str:
    """Such as 0.60B."""
    return f"{sum(weight.numel() for weight in model.parameters()) / 1e9:.2f}B"


if __name__ == "__main__":
    main()

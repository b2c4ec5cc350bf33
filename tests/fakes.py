"""What tests share: a tokenizer of bytes, a toy environment, and an engine that fails on demand."""

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from turnwise.engines.embedded import EmbeddedEngine
from turnwise.environments.base import Environment, EnvironmentSpec, Split
from turnwise.errors import ToolError
from turnwise.models.places import tiny_folder
from turnwise.rewards.parts import RewardPart, Scope, reward_part
from turnwise.seeds import derive
from turnwise.tools.tool import tool
from turnwise.types import Action, Group, Observation, Step, Task, ToolCall, Trajectory, Verdict

PAD, END = "<|pad|>", "<|endoftext|>"
TAGS = ("think", "search", "information", "answer")
SPECIAL_TOKENS = [PAD, END, *(f"<{slash}{tag}>" for tag in TAGS for slash in ("", "/"))]
"""The special tokens of `tiny`."""
CAPITALS = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo"}


def byte_tokenizer(
    special: Sequence[str] = SPECIAL_TOKENS, pad: str = PAD, end: str = END
) -> PreTrainedTokenizerFast:
    """One token a byte, and special tokens: the tags of `tiny`, or others."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(special))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=pad, eos_token=end)


def _sizes(tokenizer: PreTrainedTokenizerFast, positions: int = 512) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "max_position_embeddings": positions,
        "tie_word_embeddings": False,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }


def small_model(
    tokenizer: PreTrainedTokenizerFast, seed: int = 0, positions: int = 512
) -> Qwen3ForCausalLM:
    """A random Qwen3 of 20,000 parameters."""
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(Qwen3Config(**_sizes(tokenizer, positions), intermediate_size=32))


def _saved(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_small_model(folder: Path, seed: int = 0) -> Path:
    """A random model with its tokenizer on disk."""
    tokenizer = byte_tokenizer()
    return _saved(folder, small_model(tokenizer, seed), tokenizer)


def small_mixture(tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> Qwen3MoeForCausalLM:
    """A random Qwen3 with a mixture of eight experts in each of two layers, of which a token goes
    to three."""
    experts = {"moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 3}
    peaked = {"norm_topk_prob": True, "initializer_range": 0.3}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = Qwen3MoeConfig(**_sizes(tokenizer), **experts, **peaked)
        return Qwen3MoeForCausalLM(config).eval()


def save_small_mixture(folder: Path) -> Path:
    """A random mixture of experts with its tokenizer on disk."""
    tokenizer = byte_tokenizer()
    return _saved(folder, small_mixture(tokenizer), tokenizer)


def save_chat_model(folder: Path) -> Path:
    """A random model on disk that can be asked as a judge: it has a chat template, and the
    tokenizer of `tiny`, in which a request is short enough for it."""
    tokenizer = AutoTokenizer.from_pretrained(str(tiny_folder("tiny")))
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}\n{% endfor %}judge:"
    return _saved(folder, small_model(tokenizer, positions=1024), tokenizer)


class Capitals(Environment):
    """Four countries, one tool; the smallest environment there can be."""

    facts = EnvironmentSpec("capitals", "1")

    def tasks(self, split: Split) -> Sequence[Task]:
        chosen = sorted(CAPITALS)[:2] if split == "train" else sorted(CAPITALS)[2:]
        return [
            Task(land, f"Capital of {land}?", {"answers": [CAPITALS[land]]}, info={"hops": "one"})
            for land in chosen
        ]

    @tool
    def lookup(self, country: str) -> str:
        """Look a country up."""
        if country not in CAPITALS:
            raise ToolError(f"no country {country!r}")
        return f"The capital is {CAPITALS[country]}."

    async def verify(self, trajectory: Trajectory) -> Verdict:
        right = trajectory.answer in trajectory.task.secret["answers"]
        return Verdict(float(right), right, {"exact_match": float(right)}, f"{trajectory.answer}")

    def oracle(self, task: Task) -> Sequence[Action]:
        call = ToolCall("lookup", {"country": task.id})
        return [Action("", calls=(call,)), Action("", answer=task.secret["answers"][0])]


class Rooms(Capitals):
    """A tool that changes what the verdict sees."""

    def fresh(self) -> "Rooms":
        made = super().fresh()
        made.booked = list[int]()
        return made

    @tool
    def book(self, room: int) -> str:
        """Book a room."""
        if room == 13:
            raise KeyError("no such room")
        self.booked.append(room)
        return f"Room {room} is yours."

    async def verify(self, trajectory: Trajectory) -> Verdict:
        return Verdict(float(len(self.booked)), self.booked == [7])


class Letters(Capitals):
    """The same, with a reward that even a random model gets some of: its share of letters."""

    async def verify(self, trajectory: Trajectory) -> Verdict:
        share = sum(map(str.isalpha, trajectory.written)) / max(len(trajectory.written), 1)
        right = trajectory.answer in trajectory.task.secret.get("answers", ())
        return Verdict(share, right, {"letters": share}, trajectory.written)


class Reporting(Letters):
    """Reports the share of letters, of the episode and of each turn, and rewards the answer."""

    facts = EnvironmentSpec(
        "reporting",
        "1",
        parts={"letters": RewardPart(0, 1), "each": RewardPart(0, 1, scope=Scope.TURNS)},
    )

    async def verify(self, trajectory: Trajectory) -> Verdict:
        verdict = await super().verify(trajectory)
        each = [
            sum(map(str.isalpha, turn.action.text)) / max(len(turn.action.text), 1)
            for turn in trajectory.turns
        ]
        return replace(verdict, reward=float(verdict.success), turn_parts={"each": each})


@reward_part("written", 0, 1)
def written(trajectory: Trajectory) -> float:
    """1 where anything was written."""
    return float(bool(trajectory.written))


@reward_part("rank", 0, 1, Scope.GROUP)
def rank(group: Group) -> list[float]:
    """The place of an episode by its letters, from 0, as a share."""
    letters = [member.written for member in group.graded]
    return [sorted(letters).index(one) / len(letters) for one in letters]


class LateLetters(Letters):
    """The same, after a random time: most episodes begin at once, some late."""

    async def reset(self, task: Task, seed: int) -> Observation:
        await asyncio.sleep(random.Random(seed).choice([0.0, 0.0, 0.0, 0.02, 0.1]))
        return await super().reset(task, seed)


class Levels(Letters):
    """Eight tasks, from one that any text solves to one that none does."""

    def tasks(self, split: Split) -> Sequence[Task]:
        names = range(8) if split == "train" else range(8, 10)
        return [Task(f"level {name}", "Write.", {"level": name / 8}) for name in names]

    async def verify(self, trajectory: Trajectory) -> Verdict:
        verdict = await super().verify(trajectory)
        return replace(verdict, success=verdict.reward > trajectory.task.secret["level"])

    def oracle(self, task: Task) -> Sequence[Action]:
        return [Action("letters", answer="letters")]


class Restorable(Letters):
    """The same; an episode has no state, so it can go on from anywhere."""

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        assert not state


SAFE_PAY, RISKY_CHANCE = 0.15, 0.25


class Arms(Environment):
    """Two arms, of which one pays 1 by chance, so that the value of every turn is known."""

    facts = EnvironmentSpec("arms", "1", turn_rewards=True)
    same_splits = True

    def __init__(self, pulls: int = 1) -> None:
        self.pulls = pulls

    def tasks(self, split: Split) -> Sequence[Task]:
        risky = ("left", "right", "right", "left")
        prompt = f"Pull the left arm or the right arm, {self.pulls} times."
        return [Task(f"{split} {n}", prompt, data={"risky": arm}) for n, arm in enumerate(risky)]

    async def reset(self, task: Task, seed: int) -> Observation:
        self.risky, self.seed, self.paid = task.data["risky"], seed, list[float]()
        return await super().reset(task, seed)

    @tool
    async def pull(self, arm: str) -> str:
        """Pull an arm."""
        lucky = derive(self.seed, "pull", len(self.paid)) < RISKY_CHANCE * 2**63
        self.paid.append(float(lucky) if arm == self.risky else SAFE_PAY)
        return f"It pays {self.paid[-1]:g}."

    async def step(self, action: Action) -> Step:
        before = len(self.paid)
        step = await super().step(action)
        done = step.done or len(self.paid) == self.pulls
        return replace(step, done=done, reward=sum(self.paid[before:]))

    async def verify(self, trajectory: Trajectory) -> Verdict:
        return Verdict(0.0, len(self.paid) == self.pulls)

    def oracle(self, task: Task) -> Sequence[Action]:
        return [Action("", "left", (ToolCall("pull", {"arm": "left"}),))] * self.pulls

    def snapshot(self) -> bytes:
        return json.dumps([self.risky, self.seed, self.paid]).encode()

    def restore(self, state: bytes) -> None:
        self.risky, self.seed, self.paid = json.loads(state)

    def reseed(self, seed: int) -> None:
        self.seed = seed


class Untold(EmbeddedEngine):
    """An engine that does not say among which tokens each one was drawn."""

    returns_kept = False

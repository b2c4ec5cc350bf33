"""Tiny random models on disk, and trajectories of random tokens, for the learning tests."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.utils import logging

from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Group, Outcome, Task, Trajectory, Verdict

VOCABULARY = 50
FAMILIES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"tie_word_embeddings": True}),
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "gemma2": (Gemma2Config, Gemma2ForCausalLM, {"final_logit_softcapping": 1.5}),
}

LoadModel = Callable[..., PreTrainedModel]
MakeGroups = Callable[..., list[Group]]


@pytest.fixture(autouse=True, scope="session")
def no_progress_bars() -> None:
    """They write to a file of pytest's, which a test of full disks would fail on."""
    logging.disable_progress_bar()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small matrices are not worth a second thread, and other tests run beside these."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def model_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A random model of each family on disk, with peaked logits."""
    folders = {}
    for family, (config_class, model_class, options) in FAMILIES.items():
        config = config_class(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            max_position_embeddings=256,
            initializer_range=0.2,
            **options,
        )
        with torch.random.fork_rng():
            torch.manual_seed(1)
            model = model_class(config)
        folders[family] = tmp_path_factory.mktemp(family)
        model.save_pretrained(folders[family])
    return folders


@pytest.fixture
def load_model(model_folders: dict[str, Path]) -> LoadModel:
    """A fresh copy of a tiny model: load_model("llama")."""

    def load(family: str = "qwen3", **options: Any) -> PreTrainedModel:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            model_folders[family], **options
        )
        return model

    return load


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """One word per token."""
    words = {f"w{index}": index for index in range(VOCABULARY)}
    core = Tokenizer(WordLevel(words, unk_token="w0"))
    core.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="w0")


@pytest.fixture
def make_tokens() -> Callable[..., Tokens]:
    """A record of some turns: prompt, then model tokens and tool output in alternation."""
    return random_tokens


@pytest.fixture
def make_groups() -> MakeGroups:
    """make_groups([[1, 0], [1, None]]): one list of rewards per group, None for ungraded."""

    def make(rewards: Sequence[Sequence[float | None]], seed: int = 0) -> list[Group]:
        generator = np.random.default_rng(seed)
        return [
            Group(
                f"g{number}",
                tuple(
                    random_trajectory(generator, f"g{number}", episode, reward)
                    for episode, reward in enumerate(members)
                ),
            )
            for number, members in enumerate(rewards)
        ]

    return make


def random_tokens(generator: np.random.Generator, turns: int = 2) -> Tokens:
    """Lengths vary; the log-probabilities are those of a nearly uniform policy."""
    tokens = Tokens.empty()

    def some(low: int, high: int) -> list[int]:
        return generator.integers(0, VOCABULARY, generator.integers(low, high)).tolist()

    tokens = tokens.with_segments([Segment(some(2, 9), Source.USER)], 0)
    for turn in range(turns):
        words = some(2, 7)
        logprobs = generator.normal(-3.5, 0.3, len(words)).tolist()
        tokens = tokens.with_sampled(words, logprobs, version=0, turn=turn)
        tokens = tokens.with_segments([Segment(some(1, 6), Source.TOOL)], turn)
    return tokens


def random_trajectory(
    generator: np.random.Generator, group: str, episode: int, reward: float | None
) -> Trajectory:
    """Graded unless `reward` is None."""
    return Trajectory(
        task=Task(group, "question"),
        group=group,
        episode=episode,
        seed=0,
        tokens=random_tokens(generator, turns=int(generator.integers(1, 4))),
        outcome=Outcome.INFRASTRUCTURE_STEP if reward is None else Outcome.SUCCESS,
        verdict=None if reward is None else Verdict(reward, reward > 0),
    )

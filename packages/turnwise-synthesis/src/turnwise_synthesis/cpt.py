"""Continual pre-training: the next token, on all tokens of texts, before anything else is learned.

Source: Su et al. 2025 (arXiv 2509.13310), which trains on texts of agents so before it imitates.
Not here: how such texts are made (`founder`).
"""

import json
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from torch import nn
from transformers import PreTrainedTokenizerBase

from turnwise.config import Recipe, SftConfig
from turnwise.environments.records import lines_of, read_text
from turnwise.errors import DataError
from turnwise.learning.ranks import Ranks
from turnwise.learning.sft import SupervisedLearner
from turnwise.storage import checkpoint
from turnwise.tokens import Segment, Source, Tokens
from turnwise.training.context import RunContext
from turnwise.training.offline import learn_offline
from turnwise.training.offline_learners import offline_learner
from turnwise_synthesis.settings import CptConfig

STAGE = "cpt"


class CptLearner(SupervisedLearner):
    """The learner of demonstrations, on texts; its metrics have names of their own."""

    name = STAGE
    """The beginning of its metrics' names."""

    def step(self) -> dict[str, float]:
        """One update; one not finite changes nothing, and counts in `cpt/skipped_updates`."""
        return {name.replace("sft/", "cpt/", 1): value for name, value in super().step().items()}


class ContinualPretraining:
    """The stage of texts, before the cold start. Its last checkpoint is kept."""

    async def run(self, context: RunContext, step: int) -> int:
        recipe, saved = context.recipe, context.saved_in(STAGE)
        config = recipe.find(CptConfig)
        assert config is not None  # the section asks for the stage
        if saved is not None and saved.step == config.steps:
            return step
        texts = (text for file in config.file for text in read_texts(Path(file)))
        tokenizer = context.components.tokenizer
        pieces = [
            p for text in texts for p in pieces_of(text, tokenizer, recipe.rollout.max_tokens)
        ]
        with offline_learner(context, partial(texts_learner, pieces, config), saved) as learner:
            context.display.phase("continual pre-training", config.steps)
            await learn_offline(context, learner, STAGE, "cpt.jsonl", recipe.sft.checkpoint_every)
        await context.components.freeze()
        checkpoint.prune(checkpoint.root_of(context.folder.checkpoints, STAGE), 1)
        return step


def texts_learner(
    pieces: Sequence[Tokens], config: CptConfig, recipe: Recipe, model: nn.Module, ranks: Ranks
) -> CptLearner:
    """Make a run's learner of texts, on one of its ranks."""
    settings = SftConfig(
        steps=config.steps, batch_size=config.batch_size, learning_rate=config.learning_rate
    )
    return CptLearner(model, pieces, settings, recipe.learning, recipe.seed, ranks)


def read_texts(file: Path) -> Iterator[str]:
    """The texts of a file of JSON lines. Raises DataError, with file and line, for a line that has
    none."""
    for where, line in lines_of(read_text(file), file):
        try:
            text = json.loads(line)["text"]
        except (ValueError, TypeError, KeyError):
            text = None
        if not isinstance(text, str) or not text:
            raise DataError(f'{where}: not {{"text": "…"}} with words in it')
        yield text


def pieces_of(text: str, tokenizer: PreTrainedTokenizerBase, most: int) -> Iterator[Tokens]:
    """The records of a text, each of at most `most` tokens. Names of special tokens stand for them,
    and the text's end is one. All tokens but a record's first, before which nothing stands, are
    marked as the model's."""
    end = tokenizer.eos_token or ""
    ids = tokenizer(text.removesuffix(end) + end, add_special_tokens=False)["input_ids"]
    for start in range(0, len(ids) - 1, most):
        first, *rest = ids[start : start + most]
        begun = Tokens.empty().with_segments([Segment([first], Source.TEMPLATE)], 0)
        yield begun.with_sampled(rest, [math.nan] * len(rest), 0, 0)

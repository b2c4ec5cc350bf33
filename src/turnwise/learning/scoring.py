"""What a model makes of tokens that are given: log-probabilities without a gradient.

Not here: training; log-probabilities inside an update come from `logprobs` directly.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from turnwise.config import LearningConfig
from turnwise.learning.batch import by_length, shifted
from turnwise.learning.logprobs import token_logprobs
from turnwise.types import Trajectory

Sequenced = tuple[NDArray[np.int64], NDArray[np.bool_]]
"""Ids and which of them are wanted, [n] each."""


def score(
    model: nn.Module, sequences: Sequence[Sequenced], config: LearningConfig, temperature: float
) -> list[NDArray[np.float32]]:
    """For each sequence a float32[n]: log-probabilities of its wanted tokens, else NaN; as for a
    first token, which nothing predicts.

    `temperature` divides the logits, as when sampling; above 0.
    """
    device = next(model.parameters()).device
    found = [np.full(len(ids), np.nan, np.float32) for ids, _ in sequences]
    wanted = [1 + np.flatnonzero(chosen[1:]) for _, chosen in sequences]
    ends = [int(places[-1]) + 1 if len(places) else 0 for places in wanted]
    for batch in by_length([max(end - 1, 0) for end in ends], config.tokens_per_micro_batch):
        cut = [(sequences[i][0][: ends[i]], sequences[i][1][: ends[i]]) for i in batch]
        inputs, selected = shifted(cut)
        targets = torch.from_numpy(np.concatenate([sequences[i][0][wanted[i]] for i in batch]))
        with torch.no_grad():
            logprobs, _ = token_logprobs(
                model,
                inputs.to(device),
                selected.to(device),
                targets.to(device),
                temperature,
                config.autocast,
            )
        counts = [len(wanted[i]) for i in batch]
        for i, own in zip(batch, torch.split(logprobs.cpu(), counts), strict=True):
            found[i][wanted[i]] = own.numpy()
    return found


def sampled_logprobs(
    model: nn.Module,
    members: Sequence[Trajectory],
    config: LearningConfig,
    temperature: float,
) -> list[NDArray[np.float64]]:
    """As `score`, float64[n], of the tokens that the policy sampled in each trajectory."""
    sequences = [(member.tokens.ids, member.tokens.mask) for member in members]
    return [row.astype(np.float64) for row in score(model, sequences, config, temperature)]

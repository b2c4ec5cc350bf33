"""The pretraining of a small model on synthetic tasks: batches, updates, rates, accuracy."""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from statistics import fmean

import torch
from torch.nn import functional
from transformers import Qwen3ForCausalLM

from turnwise.forward.logprobs import token_logprobs
from turnwise_studies.tiny.pretraining_tasks import PretrainingTask

BATCH_TOKENS = 4608
MUON_RATE, ADAM_RATE = 0.015, 5e-3
WARMUP = 20
"""Updates of rising rates."""


def accuracy(model: Qwen3ForCausalLM, examples: Sequence[PretrainingTask]) -> float:
    """Share of known spans (runs of known tokens) whose every token is the likeliest."""
    return fmean(span for spans in right_spans(model, examples) for span in spans)


def right_spans(model: Qwen3ForCausalLM, examples: Sequence[PretrainingTask]) -> list[list[bool]]:
    """Whether every token of each known span is the likeliest one, by pretraining task."""
    ids, known = _tensors(examples)
    with torch.inference_mode():
        hit = model(ids[:, :-1]).logits.argmax(-1) == ids[:, 1:]
    rows = zip(hit.tolist(), known[:, 1:].tolist(), strict=True)
    return [
        [
            all(one_hit for one_hit, _ in span)
            for is_known, span in groupby(zip(*row, strict=True), key=itemgetter(1))
            if is_known
        ]
        for row in rows
    ]


def batches(examples: Sequence[PretrainingTask]) -> list[list[PretrainingTask]]:
    """Pretraining tasks of one length together, about BATCH_TOKENS tokens in a batch."""
    made: list[list[PretrainingTask]] = [[]]
    for example in sorted(examples, key=lambda example: len(example.ids)):
        if (len(made[-1]) + 1) * len(example.ids) > BATCH_TOKENS:
            made.append([])
        made[-1].append(example)
    return made


def update(
    model: Qwen3ForCausalLM,
    optimizers: Sequence[torch.optim.Optimizer],
    examples: Sequence[PretrainingTask],
) -> float:
    """One update on the known tokens; returns the loss, their mean cross-entropy in nats."""
    ids, known = _tensors(examples)
    logprob, _ = token_logprobs(
        model, ids, functional.pad(known[:, 1:], (0, 1)), ids[known], 1.0, autocast=True
    )
    loss = -logprob.mean()
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def _tensors(examples: Sequence[PretrainingTask]) -> tuple[torch.Tensor, torch.Tensor]:
    length = max(len(example.ids) for example in examples)
    ids = torch.zeros(len(examples), length, dtype=torch.long)
    known = torch.zeros(len(examples), length, dtype=torch.bool)
    for row, example in enumerate(examples):
        ids[row, : len(example.ids)] = torch.tensor(example.ids)
        known[row, : len(example.ids)] = torch.tensor(example.known)
    return ids, known


def make_optimizers(model: Qwen3ForCausalLM) -> list[torch.optim.Optimizer]:
    inner = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
    chosen = {id(weight) for weight in inner}
    rest = [weight for weight in model.parameters() if id(weight) not in chosen]
    return [
        torch.optim.Muon(inner, lr=MUON_RATE, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def set_rates(
    optimizers: Sequence[torch.optim.Optimizer], step: int, steps: int, cool_down: float
) -> None:
    """Linear warm-up, constant, linear cool-down over that share of the steps."""
    cooling = (steps - step) / (cool_down * steps) if cool_down else 1.0
    factor = min(1.0, (step + 1) / WARMUP, max(0.02, cooling))
    for optimizer, rate in zip(optimizers, (MUON_RATE, ADAM_RATE), strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate * factor

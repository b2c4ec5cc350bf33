"""Makes the base checkpoint of `tiny` from nothing: tokenizer, reading drills, weights.

    python -m turnwise build-tiny FOLDER      (two cores, well under an hour)

The curriculum goes from copying to looking up among one, two, three and four cards; a level is left
when it is mastered. Matrices are trained by Muon, the rest by AdamW: at this size copying emerges
about twice as early as with AdamW alone. The figures of a build stand beside it in figures.json.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from turnwise.errors import DataError
from turnwise.models.tiny import END, PAD, SPECIAL_TOKENS, VOCABULARY, tiny_config
from turnwise.monitor.display import Display
from turnwise.seeds import derive
from turnwise.synthesis.drills import Drill, DrillMaker

BATCH_TOKENS = 4608
LEVELS = 4
"""Cards in the hardest drill."""
MASTERED = {0: 0.05, 1: 0.7, 2: 0.7, 3: 0.7}
"""Share of drill answers in which every token must be right before the next level begins."""
CHECK_EVERY = 50
CHECKED = 64
"""Drills in one check."""
MUON_RATE, ADAM_RATE = 0.015, 5e-3
WARMUP, COOL_DOWN = 20, 0.3


def build(target: Path, texts: Sequence[str], steps: int, seed: int, display: Display) -> None:
    """Write tokenizer, weights (bfloat16) and figures into `target`, which must be new or empty."""
    if target.exists() and any(target.iterdir()):
        raise DataError(f"{target} is not empty: name a new folder")
    started = time.monotonic()
    tokenizer = train_tokenizer(texts)
    torch.manual_seed(derive(seed, "tiny", "weights") % 2**32)
    model = Qwen3ForCausalLM(tiny_config(tokenizer))
    figures = train(model, tokenizer, steps, seed, display)
    model.to(torch.bfloat16).save_pretrained(target)
    tokenizer.save_pretrained(target)
    figures |= {"steps": steps, "seed": seed, "seconds": round(time.monotonic() - started)}
    figures |= {"parameters": sum(weight.numel() for weight in model.parameters())}
    (target / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")


def train_tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE of VOCABULARY pieces. Names are read after a space everywhere, so that one
    name has one spelling in tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END)


def train(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    steps: int,
    seed: int,
    display: Display,
) -> dict[str, Any]:
    """Run the curriculum; returns the accuracy of look-up among 1 to LEVELS cards, and history."""
    maker = DrillMaker(tokenizer, derive(seed, "tiny", "drills"))
    optimizers = _optimizers(model)
    level, history = 0, []
    display.phase("reading drills", steps)
    for step in range(steps):
        _set_rates(optimizers, step, steps)
        drills = _batch(maker, level)
        loss = _loss(model, *_tensors(drills))
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        display.advance(f"level {level} loss {loss.item():.2f}")
        if (step + 1) % CHECK_EVERY == 0:
            right = accuracy(model, tokenizer, level, derive(seed, "tiny", "check", step))
            history.append({"step": step + 1, "level": level, "accuracy": round(right, 3)})
            display.say(json.dumps(history[-1]))
            level += level < LEVELS and right >= MASTERED[level]
    final = {
        f"look-up among {cards}": accuracy(model, tokenizer, cards, derive(seed, "tiny", "final"))
        for cards in range(1, LEVELS + 1)
    }
    return {"accuracy": final, "history": history}


def accuracy(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, level: int, seed: int
) -> float:
    """Share of answers (runs of known tokens) whose every token is the likeliest one."""
    maker = DrillMaker(tokenizer, seed)
    drills = [maker.look_up(level) if level else maker.copying() for _ in range(CHECKED)]
    ids, known = _tensors(drills)
    with torch.inference_mode():
        hit = model(ids[:, :-1]).logits.argmax(-1) == ids[:, 1:]
    right = total = 0
    for row_hit, row_known in zip(hit.tolist(), known[:, 1:].tolist(), strict=True):
        good, before = True, False
        for one_hit, one_known in zip([*row_hit, False], [*row_known, False], strict=True):
            if before and not one_known:
                right, total, good = right + good, total + 1, True
            good, before = good and (one_hit or not one_known), one_known
    return right / total


def _batch(maker: DrillMaker, level: int) -> list[Drill]:
    """Drills of about BATCH_TOKENS tokens: of one size, up to that of the level."""
    drills: list[Drill] = []
    cards = maker.draw(1, level + 1) if level else 0
    while sum(len(drill.ids) for drill in drills) < BATCH_TOKENS:
        drills.append(maker.look_up(cards) if cards else maker.copying())
    return drills


def _tensors(drills: Sequence[Drill]) -> tuple[torch.Tensor, torch.Tensor]:
    length = max(len(drill.ids) for drill in drills)
    ids = torch.zeros(len(drills), length, dtype=torch.long)
    known = torch.zeros(len(drills), length, dtype=torch.bool)
    for row, drill in enumerate(drills):
        ids[row, : len(drill.ids)] = torch.tensor(drill.ids)
        known[row, : len(drill.ids)] = torch.tensor(drill.known)
    return ids, known


def _loss(model: Qwen3ForCausalLM, ids: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    chosen = known[:, 1:]
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(ids[:, :-1]).last_hidden_state[chosen]
        logits = model.lm_head(hidden)
    return cross_entropy(logits.float(), ids[:, 1:][chosen])


def _optimizers(model: Qwen3ForCausalLM) -> list[torch.optim.Optimizer]:
    inner = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
    chosen = {id(weight) for weight in inner}
    rest = [weight for weight in model.parameters() if id(weight) not in chosen]
    return [
        torch.optim.Muon(inner, lr=MUON_RATE, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def _set_rates(optimizers: Sequence[torch.optim.Optimizer], step: int, steps: int) -> None:
    """Linear warm-up, constant, linear cool-down."""
    factor = min(1.0, (step + 1) / WARMUP, max(0.02, (steps - step) / (COOL_DOWN * steps)))
    for optimizer, rate in zip(optimizers, (MUON_RATE, ADAM_RATE), strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate * factor

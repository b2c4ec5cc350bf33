"""Makes the base checkpoint of `tiny` from nothing: tokenizer, pretraining tasks, synthetic
libraries.

    turnwise build-tiny FOLDER      (two cores, an hour and a half)

`read`, with few pieces of text, goes from copying to looking up among one, two, three and four
cards; a level is left when it is mastered. `cards` adds the other pieces, and looks up on the cards
of synthetic libraries: in many, for in one it would learn which names there are instead of reading
them. `tags` writes such statements whole, tags included; `words` does so in half of its pretraining
tasks, and half of its statements take a name out of a line of words. Matrices are trained by Muon,
the rest by AdamW: at this size copying emerges about twice as early as with AdamW alone. The
figures of a build stand beside it in figures.json.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from turnwise.environments.search.corpus import Document
from turnwise.errors import DataError, unknown_name
from turnwise.monitor.display import Display
from turnwise.seeds import derive
from turnwise.storage.run_folder import new_file
from turnwise_studies.tiny.architecture import (
    END,
    PAD,
    SPECIAL_TOKENS,
    TINY,
    VOCABULARY,
    Shape,
    tiny_config,
)
from turnwise_studies.tiny.cards import Library
from turnwise_studies.tiny.pretraining import (
    BATCH_TOKENS,
    PretrainingTask,
    PretrainingTaskMaker,
    accuracy,
    make_optimizers,
    set_rates,
    update,
)

STAGES = ("read", "cards", "tags", "words")
FIRST_VOCABULARY = 512
"""Copying emerges far earlier with few pieces."""
READ_SHARE = 0.15
"""Tasks of `read` in later stages: they have every piece of text, rare ones too."""
LEVELS = 4
"""Cards in the hardest pretraining task."""
MASTERED = {0: 0.5, 1: 0.7, 2: 0.7, 3: 0.7}
"""Share of answers that must be wholly right before the next level begins."""
CHECK_EVERY = 50
COOL_DOWN = 0.3


@dataclass(frozen=True)
class Reading:
    """The mix that a stage reads, in shares of 0 to 1."""

    whole: float
    """Tasks whose statements are written whole, tags included."""
    named: float
    """Statements that take a name out of a line of words."""
    cool_down: float
    """Updates at falling rates, the last ones."""


READING = {
    "cards": Reading(whole=0.0, named=0.2, cool_down=0.0),
    "tags": Reading(whole=1.0, named=0.2, cool_down=COOL_DOWN),
    "words": Reading(whole=0.5, named=0.5, cool_down=0.6),
}


@dataclass(frozen=True)
class Sizes:
    """The amounts that each stage learns from."""

    reading: int = 1430
    cards: int = 400
    tags: int = 250
    words: int = 3600
    """Updates, as those before."""
    libraries: int = 96
    """Synthetic libraries, in each stage but the first."""
    modules: int = 300
    """Modules in each library."""
    checked: int = 64
    """Pretraining tasks in one check."""


def build(
    target: Path,
    documents: Sequence[Document],
    seed: int,
    display: Display,
    stages: Sequence[str] = STAGES,
    sizes: Sizes = Sizes(),
    shape: Shape = TINY,
) -> None:
    """Write tokenizer, weights (bfloat16) and figures into `target`, which must be new or empty.
    Each stage goes on from the weights that the one before wrote. Raises ConfigError for a stage
    that there is not, DataError for a folder with something in it."""
    for stage in stages:
        if stage not in STAGES:
            raise unknown_name("stage", stage, STAGES)
    with new_file(target):
        target.mkdir(parents=True, exist_ok=True)
    if any(target.iterdir()):
        raise DataError(f"{target} is not empty: name a new folder")
    tokenizer = train_tokenizer(documents, FIRST_VOCABULARY)
    with torch.random.fork_rng():
        torch.manual_seed(derive(seed, "tiny", "weights") % 2**32)
        model = Qwen3ForCausalLM(tiny_config(tokenizer, shape))
    figures: dict[str, Any] = {"seed": seed, "stages": list(stages)}
    for stage in STAGES:
        if stage != "read" and len(tokenizer) < VOCABULARY:
            few, tokenizer = tokenizer, train_tokenizer(documents, VOCABULARY)
            grow(model, few, tokenizer)
        if stage in stages:
            started = time.monotonic()
            work = Work(model, tokenizer, documents, seed, sizes, display)
            figures[stage] = read(work) if stage == "read" else read_cards(stage, work)
            figures[stage]["seconds"] = round(time.monotonic() - started)
            figures["parameters"] = sum(weight.numel() for weight in model.parameters())
            _write(target, model, tokenizer, figures)
            model = Qwen3ForCausalLM.from_pretrained(target, dtype=torch.float32)


class Work(NamedTuple):
    """The model that a stage changes, and what it learns from."""

    model: Qwen3ForCausalLM
    tokenizer: PreTrainedTokenizerFast
    documents: Sequence[Document]
    seed: int
    sizes: Sizes
    display: Display


def _write(
    target: Path,
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    figures: dict[str, Any],
) -> None:
    model.to(torch.bfloat16).save_pretrained(target)
    tokenizer.save_pretrained(target)
    (target / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")


def train_tokenizer(documents: Sequence[Document], pieces: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE. Names are read after a space everywhere: one name has one spelling."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=pieces,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [f" {document.card} {document.text}" for document in documents]
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END)


def grow(
    model: Qwen3ForCausalLM, few: PreTrainedTokenizerFast, more: PreTrainedTokenizerFast
) -> None:
    """Give the model the pieces beyond `few`, each as the mean of what it was."""
    spell = few.backend_tokenizer.model.tokenize
    model.resize_token_embeddings(len(more), mean_resizing=False)
    with torch.no_grad():
        for weights in (model.get_input_embeddings().weight, model.get_output_embeddings().weight):
            for token in range(len(few), len(more)):
                pieces = [piece.id for piece in spell(more.convert_ids_to_tokens(token))]
                weights[token] = weights[pieces].mean(0)


def read(work: Work) -> dict[str, Any]:
    """Copying and look-up; returns accuracies and the curriculum's history."""
    model, tokenizer, _, seed, sizes, display = work
    steps = sizes.reading
    maker = PretrainingTaskMaker(tokenizer, derive(seed, "tiny", "drills", 0))
    optimizers = make_optimizers(model)
    history, level = [], 0
    display.phase("pretraining tasks", steps)
    for step in range(steps):
        set_rates(optimizers, step, steps, COOL_DOWN)
        loss = update(model, optimizers, _batch(maker, level))
        display.advance(f"level {level} loss {loss:.2f}")
        if (step + 1) % CHECK_EVERY == 0:
            check = PretrainingTaskMaker(tokenizer, derive(seed, "tiny", "check", step))
            right = accuracy(model, [_reading(check, level) for _ in range(sizes.checked)])
            history.append({"step": step + 1, "level": level, "accuracy": round(right, 3)})
            display.say(json.dumps(history[-1]))
            level += level < LEVELS and right >= MASTERED[level]
    check = PretrainingTaskMaker(tokenizer, derive(seed, "tiny", "final"))
    final = {
        f"look-up among {cards}": accuracy(
            model, [check.look_up(cards) for _ in range(sizes.checked)]
        )
        for cards in range(1, LEVELS + 1)
    }
    return {"steps": steps, "accuracy": final, "history": history}


def read_cards(stage: str, work: Work) -> dict[str, Any]:
    """Look-up on cards of synthetic libraries; returns the accuracy of known spans, in one library
    more."""
    model, tokenizer, documents, seed, sizes, display = work
    steps = {"cards": sizes.cards, "tags": sizes.tags, "words": sizes.words}[stage]
    way = READING[stage]
    maker = PretrainingTaskMaker(tokenizer, derive(seed, "tiny", stage))
    libraries = [
        Library(documents, tokenizer, derive(seed, "library", number), sizes.modules)
        for number in range(sizes.libraries)
    ]
    optimizers = make_optimizers(model)
    display.phase(stage, steps)
    for step in range(steps):
        set_rates(optimizers, step, steps, way.cool_down)
        other = maker.draw(0, 100) < 100 * READ_SHARE
        library = maker.choose(libraries)
        batch = _batch(maker, LEVELS) if other else _of_library(maker, library, way)
        display.advance(f"loss {update(model, optimizers, batch):.2f}")
    another = Library(documents, tokenizer, derive(seed, "another"), sizes.modules)
    check = PretrainingTaskMaker(tokenizer, derive(seed, "tiny", "final"))
    checked = [another.example(check) for _ in range(sizes.checked)]
    return {"steps": steps, "accuracy": round(accuracy(model, checked), 3)}


def _reading(maker: PretrainingTaskMaker, level: int) -> PretrainingTask:
    return maker.look_up(level) if level else maker.copying()


def _batch(maker: PretrainingTaskMaker, level: int) -> list[PretrainingTask]:
    """Tasks of one size, up to that of the level."""
    cards = maker.draw(1, level + 1) if level else 0
    return _filled(lambda: _reading(maker, cards))


def _of_library(
    maker: PretrainingTaskMaker, library: Library, way: Reading
) -> list[PretrainingTask]:
    """Tasks that are all whole, or none."""
    whole = maker.draw(0, 100) < 100 * way.whole
    return _filled(lambda: library.example(maker, whole, way.named))


def _filled(make: Callable[[], PretrainingTask]) -> list[PretrainingTask]:
    """Tasks of about BATCH_TOKENS tokens."""
    examples: list[PretrainingTask] = []
    while sum(len(example.ids) for example in examples) < BATCH_TOKENS:
        examples.append(make())
    return examples

"""Continual pre-training: all tokens are learned, and a run that was stopped ends as another."""

import asyncio
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests import small_runs
from tests.fakes import save_small_model
from tests.small_runs import assert_same, interrupted, write_recipe
from tests.training.test_stages import TABLES, resume, train
from turnwise.config import ModelConfig
from turnwise.errors import DataError
from turnwise.models.load import load_tokenizer
from turnwise.monitor.display import SilentDisplay
from turnwise.storage import checkpoint
from turnwise.storage.run_folder import RunFolder
from turnwise_synthesis.cpt import pieces_of, read_texts


def test_all_tokens_of_a_text_but_the_first_are_learned() -> None:
    tokenizer = load_tokenizer(ModelConfig(name="tiny_search"))
    text = "Question: Who?\n<think> look up</think><search> abc</search>"
    (whole,) = pieces_of(text, tokenizer, 900)
    assert tokenizer.decode(whole.ids).removesuffix(tokenizer.eos_token or "") == text
    assert whole.mask.tolist() == [False, *[True] * (len(whole) - 1)]
    cut = list(pieces_of(text, tokenizer, 5))
    assert [token for one in cut for token in one.ids] == list(whole.ids)
    assert max(map(len, cut)) == 5


@pytest.mark.parametrize("line", ["{", "[]", '{"text": 3}', '{"words": "a"}', '{"text": ""}'])
def test_a_line_without_a_text_is_told_by_its_number(line: str, tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text(json.dumps({"text": "one"}) + "\n" + line)
    with pytest.raises(DataError, match=r"texts.jsonl, line 2: not"):
        list(read_texts(file))


@pytest.mark.long
def test_a_run_goes_on_exactly_from_the_texts_and_after_them(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, "Letters", TABLES)
    file = tmp_path / "texts.jsonl"
    with pytest.raises(DataError, match=r"cpt.file: there is no"):
        train(recipe, tmp_path / "none", f"cpt.file=['{file}']", "cpt.steps=3")
    file.write_text("".join(json.dumps({"text": f"the letter {one}"}) + "\n" for one in "abc"))
    learns = (
        f"cpt.file=['{file}']",
        "cpt.steps=3",
        "cpt.batch_size=2",
        "train.steps=0",
        "sft.steps=2",
    )
    whole = train(recipe, tmp_path / "whole", *learns)
    lines = whole.lines("cpt.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert lines[2]["cpt/loss"] < lines[0]["cpt/loss"]
    last = "cold_start/step-000002"
    after = interrupted(whole, tmp_path / "after", "cold_start")
    assert_same(whole, resume(after), last)
    with pytest.raises(asyncio.CancelledError):
        small_runs.train(recipe, RunFolder.new(tmp_path / "early"), *learns, display=Stopping())
    early = resume(RunFolder.open(tmp_path / "early"))
    assert_same(whole, early, last)
    assert early.lines("cpt.jsonl") == lines


@pytest.mark.long
def test_the_evaluation_of_another_model_takes_away_nothing_that_was_learned(
    tmp_path: Path,
) -> None:
    recipe = write_recipe(tmp_path, "Letters", TABLES)
    file = tmp_path / "texts.jsonl"
    file.write_text(json.dumps({"text": "the letter a"}))
    other = save_small_model(tmp_path / "other", seed=1)
    learns = f"cpt.file=['{file}']", "cpt.steps=1", "train.steps=0", "sft.steps=0"
    evaluated = "evaluation.tasks=1", f"evaluation.base={other}"
    run = small_runs.train(recipe, RunFolder.new(tmp_path / "run"), *learns, *evaluated)
    saved = load_file(run.folder.checkpoints / "cpt/step-000001/model.safetensors")
    model = run.components.model.state_dict()
    assert all(torch.equal(model[name], weight) for name, weight in saved.items())


class Stopping(SilentDisplay):
    """It ends the run at the second step of anything."""

    steps = 0

    def advance(self, text: str = "") -> None:
        self.steps += 1
        if self.steps == 2:
            raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("saved", "beginning"),
    [
        (["step-000002"], None),
        (["step-000002", "cpt/step-000003"], "cpt/step-000003"),
        (["cpt/step-000003", "cold_start/step-000001"], "cold_start/step-000001"),
    ],
)
def test_a_kl_term_keeps_to_the_weights_with_which_rl_begins(
    saved: list[str], beginning: str | None, tmp_path: Path
) -> None:
    for name in saved:
        (tmp_path / name).mkdir(parents=True)
    assert checkpoint.before_rl(tmp_path) == (beginning and tmp_path / beginning)

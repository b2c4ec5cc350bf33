"""The study agentfounder: its measures, and the texts that lie beside it."""

import json
from pathlib import Path

import pytest

from turnwise.environments.registry import make_environment
from turnwise_synthesis.cpt import read_texts
from turnwise_synthesis.heldout import HeldOut
from turnwise_synthesis.studies import agentfounder
from turnwise_synthesis.wing import STUDIES


def test_the_loss_is_that_of_the_first_and_of_the_last_steps(tmp_path: Path) -> None:
    lines = [json.dumps({"step": step, "sft/loss": 40.0 - step}) for step in range(40)]
    (tmp_path / "cold_start.jsonl").write_text("\n".join(lines) + "\n")
    assert agentfounder.early_loss(tmp_path) == 35.5
    assert agentfounder.last_loss(tmp_path) == 5.5


@pytest.mark.long
@pytest.mark.parametrize("name", ["first_order", "higher_order"])
def test_shipped_texts_are_each_there_once_and_hold_no_held_out_question(name: str) -> None:
    texts = list(read_texts(STUDIES / f"agentfounder_{name}.jsonl"))
    assert len(set(texts)) == len(texts)
    environment = make_environment("search", {"tasks": {"inverse": False, "hops": ["two"]}})
    heldout = HeldOut(environment.tasks("heldout"))
    assert not any(map(heldout.holds, texts))

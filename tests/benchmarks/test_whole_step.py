"""The task that whole steps are compared on: it makes any sampler do the same."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from turnwise.config import ModelConfig
from turnwise.models.load import load_tokenizer
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.tokens import Source
from turnwise.tools.tool import Tool, tool
from turnwise.types import Observation

pytest.importorskip("turnwise_studies")
import whole_step_task as task
from whole_step import check_work, fastest
from whole_step_work import work_of

TURN = 12


@tool
def search(query: str) -> str:
    """Look something up."""
    return query


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("task")
    task.write_task(place, load_tokenizer(ModelConfig()), tasks=2, group=2, turn_tokens=TURN)
    return place


def rendered(tokenizer: Any, messages: list[dict[str, Any]], prompt: bool) -> list[int]:
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=prompt, return_dict=False)
    return list(ids)


def test_the_chat_template_writes_what_the_scaffold_writes(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    scaffold = TagsScaffold(tokenizer, [Tool.of(search)], task.INSTRUCTIONS)
    question = json.loads((folder / "task.json").read_text())["questions"][1]
    user = {"role": "user", "content": task.INSTRUCTIONS + question}
    begun = [t for part in scaffold.begin(Observation(question, Source.USER)) for t in part.tokens]
    assert begun == rendered(tokenizer, [user], True)
    call = {"type": "function", "function": {"name": "search", "arguments": {"query": "x"}}}
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "name": "search", "content": task.FOUND}
    before = rendered(tokenizer, [user, said], False)
    after = rendered(tokenizer, [user, said, result], True)
    seen = scaffold.extend(Observation(task.FOUND, Source.TOOL))
    assert after == before + [token for part in seen for token in part.tokens]


def test_every_turn_is_a_call_of_the_same_length(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    scaffold = TagsScaffold(tokenizer, [Tool.of(search)], task.INSTRUCTIONS)
    prompt = rendered(tokenizer, [{"role": "user", "content": "Which?"}], True)
    torch.manual_seed(0)
    found = model.generate(torch.tensor([prompt] * 4), do_sample=True, top_k=0, max_new_tokens=99)
    turns = found[:, len(prompt) :].tolist()
    assert len({tuple(turn) for turn in turns}) == 4
    for turn in turns:
        assert len(turn) == TURN
        (call,) = scaffold.parse(turn).calls
        parsed = tokenizer.parse_response(turn, prefix=prompt)["tool_calls"]
        assert [entry["function"]["arguments"] for entry in parsed] == [call.arguments]


def test_work_is_equal_when_all_but_the_sampled_tokens_is() -> None:
    prompt, turn, result = [1, 2], [7, 8], [3]
    mask = [False, False, True, True, False, True, True]
    first = work_of([(prompt + turn + result + turn, mask)])
    assert first == work_of([([*prompt, 9, 9, *result, *turn], mask)])
    assert (first["turns"], first["sampled"], first["tokens"]) == (2, 4, 7)
    assert first != work_of([(prompt + turn + [4] + turn, mask)])
    assert first != work_of([(prompt + turn + result + turn, [False] * 3 + mask[3:])])


def test_a_contender_that_did_less_is_an_error() -> None:
    wanted = {"trajectories": 1, "turns": 4, "sampled": 48}
    work = wanted | {"digest": "same"}
    check_work({"a": [{"work": work}], "b": [{"work": work}]}, wanted)
    with pytest.raises(SystemExit, match="b did"):
        check_work({"a": [{"work": work}], "b": [{"work": work | {"digest": "other"}}]}, wanted)
    with pytest.raises(SystemExit, match="a did"):
        check_work({"a": [{"work": work | {"turns": 3}}]}, wanted)


def test_the_fastest_form_of_each_is_chosen() -> None:
    seconds = {"turnwise": 3, "turnwise, bfloat16": 2, "TRL": 7, "TRL, bfloat16": 9}
    answers = {name: [{"seconds": value}] for name, value in seconds.items()}
    assert set(fastest(answers)) == {"turnwise, bfloat16", "TRL"}


@pytest.mark.slow
def test_the_command_runs_without_peers(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    sizes = ["--tasks", "1", "--group", "2", "--turn-tokens", str(TURN)]
    sizes += ["--threads", "1", "--rounds", "1"]
    chosen = ["--contenders", "turnwise", "--delay", "0.2"]
    command = [sys.executable, "benchmarks/whole_step.py", *sizes, *chosen, "--json", str(file)]
    root = Path(__file__).parents[2]
    subprocess.run(command, cwd=root, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True)
    figures = json.loads(file.read_text())
    for tools, least in (("instant tools", 0), ("slow tools", 0.2 * (task.TURNS - 1))):
        (row,) = figures[tools]
        assert row["rounds"][0]["work"]["sampled"] == 2 * task.TURNS * TURN
        assert row["rounds"][0]["rollout"] > least

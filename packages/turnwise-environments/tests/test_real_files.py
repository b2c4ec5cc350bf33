"""Files of others, as docs/reference/real_files.md has them: what is read, and its scores."""

import json
from pathlib import Path
from typing import Any

import pytest

from turnwise.environments.registry import make_environment
from turnwise_environments.choosing import all_tasks, spread
from turnwise_environments.measurement import NOTHING, oracles, played_all, success

DATA = Path(__file__).parents[4] / "shared" / "data"
PLAYED = 6
CORPUS = {"documents": "multihop/2wiki_corpus.json"}
FILES: dict[str, tuple[str, dict[str, str], int, float | None]] = {
    "toolrl/rlla_sft.json": ("recorded_calls", {}, 346, 1.0),
    "multihop/hotpotqa_test.jsonl": ("search", CORPUS, 200, None),
    "gsm8k/train.jsonl": ("mathematics", {}, 7473, 1.0),
    "dbbench/standard.jsonl": ("sql", {}, 300, 1.0),
    "dbbench/dev.jsonl": ("sql", {}, 60, 1.0),
    "boxoban": ("sokoban", {}, 2000, 1.0),
}
"""The file, its environment with further options, its tasks, and the oracle's success."""
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the real files are not here")


def opened(name: str, file: Path, others: dict[str, str]) -> Any:
    options = {key: str(DATA / path) for key, path in others.items()}
    return make_environment(name, {"tasks": {"file": str(file), **options}})


@pytest.mark.parametrize("path", FILES)
@pytest.mark.long
def test_the_scores_of_the_table(path: str) -> None:
    name, others, count, wanted = FILES[path]
    environment = opened(name, DATA / path, others)
    tasks = all_tasks(environment)
    assert len(tasks) == count
    chosen = spread(tasks, PLAYED)
    known = list(oracles(environment, chosen))
    assert len(known) == (0 if wanted is None else len(chosen))
    scripts = [actions for _, actions in known]
    assert success(played_all(environment, [task for task, _ in known], scripts)) == (wanted or 0)
    assert success(played_all(environment, chosen, [[NOTHING]] * len(chosen))) == 0.0


@pytest.mark.parametrize(
    "path", ["toolrl/rlla_sft.json", "gsm8k/train.jsonl", "dbbench/standard.jsonl"]
)
def test_a_broken_record_voids_no_file(path: str, tmp_path: Path) -> None:
    name, _, _, _ = FILES[path]
    text = (DATA / path).read_text()
    rows = json.loads(text) if path.endswith("json") else [*map(json.loads, text.splitlines())]
    lines = [json.dumps(rows[0]), '{"broken": ', json.dumps({"other": 1}), json.dumps(rows[1])]
    file = tmp_path / "some.jsonl"
    file.write_text("\n".join(lines))
    environment = opened(name, file, {})
    assert len(all_tasks(environment)) == 2
    told = "\n".join(environment.task_set.warnings)
    assert f"{file}, line 2: broken JSON" in told
    assert f"{file}, line 3: " in told

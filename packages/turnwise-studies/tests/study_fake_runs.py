"""A study's file, and run folders made by hand: a report, metrics, an evaluation's episodes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from turnwise_studies.config import shipped_studies

ROOT = Path(__file__).parents[3]
STUDIES = [*shipped_studies(), *sorted(map(str, (ROOT / "benchmarks/studies").glob("*.toml")))]
"""All studies of this repository."""
VALUES: dict[str, Any] = {
    "name": "it",
    "recipe": "search",
    "seeds": [0, 1],
    "arms": {"one": {}, "two": {"train": {"steps": 7}}},
    "metrics": {"success": {"report": "trained.success"}},
    "effects": [],
}
CONFIG = 'name = "x"\n[environment]\nname = "search"\n'


def write_study(folder: Path, **changes: Any) -> str:
    file = folder / "it.toml"
    file.write_text(tomli_w.dumps(VALUES | changes))
    return str(file)


def fake_run(folder: Path, won: Sequence[bool], curve: Sequence[float] = (0.5,) * 10) -> Path:
    """A finished run whose trained policy won so on its tasks, with such training success."""
    (folder / "evaluations").mkdir(parents=True)
    (folder / "trajectories").mkdir()
    (folder / "config.toml").write_text(CONFIG)
    success = sum(won) / len(won)
    hops = {"two": {"success": success / 2, "low": 0.0, "high": 0.5}}
    part: dict[str, Any] = {"success": success, "low": success / 2, "high": 1.0, "tool_calls": 1.5}
    part |= {"breakdown": {"hops": hops}, "n": len(won)}
    report = {"trained": part, "seconds": 90.0, "commit": "abc", "statement": {"machine": "m"}}
    (folder / "report.json").write_text(json.dumps(report))
    (folder / "evaluations" / "trained.json").write_text(json.dumps({"environment": "e", **part}))
    lines = [
        {"step": step, "rollout/success": value, "rollout/tokens_sampled": 100.0}
        for step, value in enumerate(curve, 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = [
        {"group": f"evaluation/trained/t{n}", "episode": 0, "seed": 0, "success": one, "prompt": ""}
        for n, one in enumerate(won)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "trajectories/evaluation-trained.parquet")
    return folder

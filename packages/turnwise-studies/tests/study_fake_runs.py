"""Run folders of studies, made by hand: a report, metrics, and an evaluation's episodes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

CONFIG = 'name = "x"\n[environment]\nname = "search"\n'


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

"""Every number of a run over its steps, with what each means and what happened when."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.storage.run_folder import RunFolder

LOGS = ("metrics", "timing", "validation", "cold_start", "imitation", "preferences")
LEARNING = ("rollout/success", "reward/mean", "validation/success")
"""The curves that say whether a run learns."""
ECHO_TRAP = (
    "reward/group_std",
    "reward/mean",
    "policy/entropy",
    "policy/gradient_norm",
    "repetition/ngrams",
    "repetition/actions",
)
"""The signs of an Echo Trap, in the order in which they are looked at."""
Warnings = Callable[[Sequence[Mapping[str, Any]]], Sequence[tuple[int, str]]]
"""The steps of a run, by its metrics, at which something was to be warned of, and the sentences."""


def curves(path: Path, meanings: Mapping[str, str], warnings: Warnings) -> dict[str, Any]:
    """The series of a run, their meanings, and its markers, `warnings` among them.

    A name of a log other than metrics.jsonl and timing.jsonl begins with the log's, as in
    `cold_start/loss`.
    """
    folder = RunFolder.open(path)
    series: dict[str, dict[str, list[Any]]] = {}
    for log in LOGS:
        for line in folder.lines(f"{log}.jsonl"):
            for name, value in line.items():
                if name == "step" or isinstance(value, bool) or not isinstance(value, int | float):
                    continue
                own = log in ("metrics", "timing") or name.startswith(f"{log}/")
                whole = name if own else f"{log}/{name}"
                one = series.setdefault(whole, {"steps": [], "values": []})
                one["steps"].append(line["step"])
                one["values"].append(value if math.isfinite(value) else None)
    known = {name: meaning_of(name, meanings) for name in series}
    return {
        "series": series,
        "meanings": {name: meaning for name, meaning in known.items() if meaning},
        "markers": _markers(folder, warnings),
        "learning": [name for name in LEARNING if name in series],
        "echo_trap": [name for name in ECHO_TRAP if name in series],
    }


def meaning_of(name: str, meanings: Mapping[str, str]) -> str:
    """The meaning of a metric; empty for one that has none. `NAME` in a known name stands for any
    word."""
    if name in meanings:
        return meanings[name]
    words = name.split("/")
    for known, meaning in meanings.items():
        pattern = known.split("/")
        if "NAME" in pattern and len(pattern) <= len(words):
            fits = zip(pattern, words, strict=False)
            if all(one in ("NAME", word) for one, word in fits):
                return meaning
    inner = name.partition("/")[2]
    return meaning_of(inner, meanings) if inner and words[0] in LOGS else ""


def _markers(folder: RunFolder, warnings: Warnings) -> list[dict[str, Any]]:
    """The marks at steps: steps that taught nothing, evaluations, warnings."""
    found = [
        {"step": line["step"], "kind": "no signal", "text": line.get("reason", "")}
        for line in folder.lines("no_signal.jsonl")
    ]
    for line in folder.lines("validation.jsonl"):
        rate = line.get("validation/success")
        said = "" if rate is None else f": {rate:.0%} success"
        found.append({"step": line["step"], "kind": "evaluation", "text": f"validation{said}"})
    for step, sentence in warnings(folder.lines("metrics.jsonl")):
        found.append({"step": step, "kind": "warning", "text": sentence})
    return sorted(found, key=lambda marker: int(marker["step"]))

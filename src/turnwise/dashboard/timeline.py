"""The spans of a step, and the waits in it: sampling, the learner's waiting, its update.

What timing.jsonl has of each step is drawn; turns and tools of single episodes are not recorded.
Not here: drawing it.
"""

from pathlib import Path
from typing import Any

from turnwise.storage.run_folder import RunFolder

NOTHING = "No step has been timed yet: the run has no timing.jsonl."


def timeline(path: Path, step: int | None) -> dict[str, Any]:
    """The spans of a step, in seconds from its beginning; of the newest one where none is named.

    A step sampled ahead began before the learner was done with the one before, so its sampling
    begins before 0.
    """
    lines = RunFolder.open(path).lines("timing.jsonl")
    chosen = next((line for line in lines if line["step"] == step), None)
    if step is None and lines:
        chosen = lines[-1]
    if chosen is None:
        absent = NOTHING if not lines else f"There is no step {step} in timing.jsonl."
        return {"step": step, "spans": [], "absent": absent}
    waiting, update = chosen.get("seconds/waiting", 0.0), chosen.get("seconds/update", 0.0)
    rollout, whole = chosen.get("seconds/rollout", 0.0), chosen.get("seconds/step", 0.0)
    spans = [
        _span("sampling", "this step's episodes", waiting - rollout, waiting, "sampling"),
        _span("learner", "waits for them", 0.0, waiting, "waiting"),
        _span("learner", "update", waiting, waiting + update, "learning"),
        _span("learner", "records, new weights", waiting + update, whole, "weights"),
    ]
    spans = [span for span in spans if span["end"] > span["start"]]
    return {"step": chosen["step"], "spans": spans, "absent": None}


def _span(lane: str, label: str, start: float, end: float, kind: str) -> dict[str, Any]:
    return {"lane": lane, "label": label, "start": start, "end": end, "kind": kind}

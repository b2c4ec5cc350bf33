"""Two parts of `gpu.py` for which others are needed: the recipe of the demo, run as a user runs it
and held against its expected runs, and transformers' `generate`."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

DEMO_SECONDS = 240
"""What of the minutes that a machine is lent for may go into the demo."""


def demo(device: str) -> dict[str, Any]:
    """Success and minutes of the whole recipe, and whether it lies within the band of other runs;
    without these where it ended in an error or took too long."""
    turnwise = [sys.executable, "-m", "turnwise"]
    with tempfile.TemporaryDirectory() as folder:
        run, begun = Path(folder) / "demo", time.monotonic()
        command = [*turnwise, "train", "demo", "--run", str(run), f"model.device={device}"]
        try:
            trained = subprocess.run(command, capture_output=True, text=True, timeout=DEMO_SECONDS)
        except subprocess.TimeoutExpired as stopped:
            said = (stopped.stdout or b"").decode(errors="replace").strip().splitlines()
            return {"stopped after": f"{DEMO_SECONDS} s", "last line": said[-1] if said else ""}
        if trained.returncode:
            return {"failed": (trained.stderr.strip().splitlines() or ["?"])[-1]}
        seconds = time.monotonic() - begun
        against = [*turnwise, "compare-runs", str(run), "--expected"]
        within = subprocess.run(against, capture_output=True, text=True).returncode == 0
        report = json.loads((run / "report.json").read_text())
        success = f"{report['trained']['success']:.1%}"
    return {"minutes": round(seconds / 60, 1), "success": success, "within its band": within}


def generate(model: Any, sequences: int, prompt: int, new: int) -> None:
    """Sample one turn of so many tokens of each sequence."""
    import torch

    ids = torch.randint(3, model.config.vocab_size, (sequences, prompt), device=model.device)
    with torch.inference_mode():
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            top_k=0,
            min_new_tokens=new,
            max_new_tokens=new,
            pad_token_id=0,
        )

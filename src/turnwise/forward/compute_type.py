"""The type of an update's matrix products: the faster one on the machine at hand, by measurement.

A processor without instructions for bfloat16 multiplies in it a hundred times slower than in
float32, and one with them several times faster; only a trial says which one it is.
"""

import json
import os
import statistics
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from turnwise.errors import ConfigError
from turnwise.folders import cache_folder, write_whole
from turnwise.forward.equality import PROBE, ordinary_tokens
from turnwise.forward.logprobs import token_logprobs
from turnwise.threads import cpuinfo

FASTER = 1.2
"""How many times as fast bfloat16 has to be to be taken, since it rounds."""
SMALL = 20_000_000
"""Parameters. A smaller model's steps are not mainly products, and rounding shows."""
PARITY = 0.05
"""Largest mean distance, in nats, of log-probabilities in bfloat16 from those in float32."""
FEWEST, MOST = 4, 65_536
"""Rows of a trial."""
LONG = 0.05
"""Seconds of a trial that is long enough to be measured."""
CLEAR = 5.0
"""How many times as slow bfloat16 has to be in one trial for no other to be needed."""
TRIALS = 5
FILE = "compute_types.json"


@dataclass(frozen=True)
class ComputeType:
    """The type that was chosen, "float32" or "bfloat16", and the sentence that says why."""

    name: str
    why: str


def choose_compute_type(base: Any, asked: str, device: torch.device) -> ComputeType:
    """Choose the type of a model's updates on a device: `asked`, or with "auto" the faster one.
    Weights in bfloat16 are computed in it. ConfigError for a type that weights or device lack."""
    own = str(base.dtype).removeprefix("torch.")
    if own != "float32":
        if asked == "float32":
            raise ConfigError(
                f"learning.compute_dtype is float32, and the weights are {own}: set "
                "model.dtype=float32, or leave learning.compute_dtype out"
            )
        return ComputeType(own, f"the weights' own type{_warning(base, device)}")
    if asked != "bfloat16" and base.num_parameters() < SMALL:
        return ComputeType("float32", f"the model has fewer than {SMALL / 1e6:.0f}M parameters")
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        card = torch.cuda.get_device_name(device)
        if asked != "bfloat16":
            return ComputeType("float32", f"{card} has no bfloat16")
        raise ConfigError(f"learning.compute_dtype is bfloat16, which {card} lacks: leave it out")
    if asked != "auto":
        return ComputeType(asked, f"as the recipe says{_warning(base, device, asked)}")
    gain, note = speed_of_bfloat16(base, device)
    told = f"bfloat16 is {_times(gain)} here{note}"
    if gain < FASTER:
        return ComputeType("float32", told)
    # A model that is not on its device yet cannot be tried there: speed alone decides.
    far = 0.0 if base.device != device else _distance(base)
    # So and not `far > PARITY`: NaN has to count as far.
    if not far <= PARITY:
        return ComputeType("float32", f"{told}, but off by {far:.2g} nats")
    return ComputeType("bfloat16", f"{told}, and within {far:.2g} nats of float32")


def speed_of_bfloat16(base: Any, device: torch.device) -> tuple[float, str]:
    """The rate of bfloat16 over that of float32, and a remark where it was not kept."""
    settings = base.config.get_text_config()
    width = int(settings.hidden_size)
    inner = int(getattr(settings, "intermediate_size", None) or 4 * width)
    key = f"{_machine(device)}, {width} x {inner}"
    file = cache_folder() / FILE
    known: dict[str, float] = {}
    with suppress(OSError, ValueError):
        known = json.loads(file.read_text())
    if isinstance(known, dict) and isinstance(known.get(key), float):
        return known[key], ""
    gain = _measured(width, inner, device)
    try:
        values = {**(known if isinstance(known, dict) else {}), key: gain}
        write_whole(file, json.dumps(values, indent=1).encode())
    except OSError as error:
        return gain, f" (measured at each start: {file} cannot be written, {error.strerror})"
    return gain, ""


def _measured(width: int, inner: int, device: torch.device) -> float:
    """Seconds of a product and its gradients in float32 over those under autocast to bfloat16."""
    weights = torch.ones(inner, width, device=device, requires_grad=True)
    rows, seconds = FEWEST, 0.0
    # A product that is too short measures the call and not the arithmetic.
    while seconds < LONG and rows < MOST:
        rows *= 4
        tries = [[_seconds(rows, weights, lower) for _ in range(2)] for lower in (False, True)]
        # The first try gets it warm, or a neighbour interrupts one.
        exact, rounded = map(min, tries)
        # Where bfloat16 is emulated, more trials would take seconds to confirm what is plain.
        if rounded > max(LONG, CLEAR * exact):
            return exact / rounded
        seconds = max(exact, rounded)
    # In turns, and by the median of ratios: a neighbour on the machine slows both of a pair.
    pairs = [[_seconds(rows, weights, lower) for lower in (False, True)] for _ in range(TRIALS)]
    return statistics.median(exact / rounded for exact, rounded in pairs)


def _seconds(rows: int, weights: Tensor, lower: bool) -> float:
    kind = weights.device.type
    inputs = torch.ones(rows, weights.shape[1], device=weights.device, requires_grad=True)
    begun = time.perf_counter()
    with torch.autocast(kind, torch.bfloat16, enabled=lower), torch.enable_grad():
        found = functional.linear(inputs, weights)
    torch.autograd.grad(found, (inputs, weights), torch.ones_like(found))
    if kind == "cuda":
        torch.cuda.synchronize(weights.device)
    return max(time.perf_counter() - begun, 1e-9)


def _distance(model: Any) -> float:
    """Mean distance, in nats, of log-probabilities in bfloat16 from those in float32."""
    text = torch.tensor([ordinary_tokens(model, PROBE)], device=model.device)
    inputs, targets = text[:, :-1], text[0, 1:]
    every = torch.ones_like(inputs, dtype=torch.bool)
    with torch.no_grad():
        exact, rounded = (
            token_logprobs(model, inputs, every, targets, 1.0, autocast)[0]
            for autocast in (False, True)
        )
    return float((exact - rounded).abs().mean())


def _warning(base: Any, device: torch.device, taken: str = "bfloat16") -> str:
    """Say how much slower a type is than the other one; nothing where it is not."""
    gain, _ = speed_of_bfloat16(base, device)
    if taken == "float32":
        return f"; bfloat16 is {_times(gain)} here" if gain >= FASTER else ""
    return "" if gain >= 1 else f"; it is {_times(gain)} here: float32 is faster"


def _times(gain: float) -> str:
    return f"{gain:.1f} times as fast" if gain >= 1 else f"{1 / gain:.3g} times as slow"


def _machine(device: torch.device) -> str:
    given = [f"{name}={os.environ[name]}" for name in SWITCHES if name in os.environ]
    if device.type == "cuda":
        return " ".join([torch.cuda.get_device_name(device), torch.__version__, *given])
    capability = torch.backends.cpu.get_cpu_capability()
    threads = f"{torch.get_num_threads()} threads"
    known = cpuinfo("model name", "flags", "Features")
    return " ".join([*known, capability, threads, torch.__version__, *given])


SWITCHES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")
"""Environment variables that take instructions away from PyTorch's libraries."""

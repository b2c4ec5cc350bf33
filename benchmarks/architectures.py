"""Which causal-LM classes of transformers the embedded engine and the learner are right for.

`python -m benchmarks.architectures --write` makes a tiny random model of every class, asks engine,
learner and shared prefixes what a run would ask them before it begins, and writes
docs/log/architectures.md. Classes go into processes of their own, a few at a time, so that a crash
or a hang of one does not end the table. Exits with 1 if anything ended in something else than the
model's own numbers or a refusal in one line. Not here: the models (`tiny_models.py`).
"""

import argparse
import asyncio
import json
import logging
import math
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs/log/architectures.md"
TOGETHER = 8
"""Classes in one process..."""
SECONDS = 600
"""...and its deadline."""
LONGEST = 128
"""Tokens of a history: beyond the tiny models' windows of 24."""
BOUND = 2**8 * 2.0**-23
"""How far log-probabilities may be from the model's own, in nats, on average over a history: 256
units of float32's rounding, 3e-5."""

OWN_PASS = "the model's own forward pass ("
"""After which the engine's refusal says how each way to compute the model failed."""
NATS = re.compile(r"(?<=by )[\d.e-]+(?= nats)|(?<=differ by )[\d.e-]+")
MARK = "%% "
"""Before each row on standard output: models print as well."""


@dataclass(frozen=True)
class Row:
    """What became of one class."""

    kind: str
    name: str
    engine: str
    learner: str
    shared: str
    why: str = ""

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong, and nothing ended in an error that is not a refusal."""
        return not any(
            word in ("wrong", "error") for word in (self.engine, self.learner, self.shared)
        )


class Dice:
    """An engine that samples anything, for models that no engine samples from."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def open(self, session: str) -> None:
        """Nothing is kept."""

    def close(self, session: str) -> None:
        """Nothing is kept."""

    async def generate(self, prompt: Any, sampling: Any, *, session: str, images: Any = ()) -> Any:
        """Tokens without meaning."""
        from turnwise.engines.base import Completion, StopReason
        from turnwise.forward.equality import ordinary_tokens

        tokens = ordinary_tokens(self._model, sampling.max_tokens, sampling.seed)
        return Completion(tokens, [0.0] * len(tokens), StopReason.MAX_TOKENS, 0)


class Ends:
    """All that the engine asks a tokenizer for where there are no stop strings."""

    eos_token_id = None
    all_special_ids: Sequence[int] = ()

    def __len__(self) -> int:
        return 1

    def decode(self, tokens: Sequence[int], **options: Any) -> str:
        """A letter for each."""
        del options
        return "a" * len(tokens)


def examine(kind: str) -> Row:
    """Make a tiny model of a `model_type`, and see what a run with it would see."""
    import torch
    from huggingface_hub.errors import StrictDataclassError

    from benchmarks.tiny_models import OUTSIDE, class_name, tiny_model
    from turnwise.forward.attention import fix_rotations
    from turnwise.forward.equality import FOREIGN_ERRORS, ordinary_tokens

    name = class_name(kind)
    try:
        model = tiny_model(kind)
        fix_rotations(model, LONGEST)
        with torch.no_grad():
            ids = torch.tensor([ordinary_tokens(model, LONGEST // 2)])
            assert model(input_ids=ids).logits.isfinite().all()
    except (*FOREIGN_ERRORS, StrictDataclassError) as error:
        reason = OUTSIDE.get(kind) or _line(error)
        return Row(kind, name, "-", "-", "-", f"not made: {reason}")
    engine, why = _engine(model)
    learner, reason = _learner(model)
    shared = _shared(model) if learner == "right" else "refused"
    return Row(kind, name, engine, learner, shared, "; ".join(filter(None, (why, reason))))


def _engine(model: Any) -> tuple[str, str]:
    from turnwise.engines.embedded import EmbeddedEngine
    from turnwise.errors import UserError
    from turnwise.forward.equality import FOREIGN_ERRORS
    from turnwise.forward.own_caches import OwnRunner
    from turnwise.learning.parity import engine_parity

    async def measured() -> tuple[str, str]:
        engine = EmbeddedEngine(
            model, Ends(), max_sequences=4, max_tokens=LONGEST, deterministic=True
        )
        try:
            found = await engine_parity(engine, model, LONGEST)
        finally:
            await engine.stop()
        kind = "right, own caches" if isinstance(engine.runner, OwnRunner) else "right"
        return (kind, "") if found <= BOUND else ("wrong", f"engine off by {found:.2g} nats")

    try:
        return asyncio.run(measured())
    except UserError as error:
        return "refused", _between(str(error))
    except FOREIGN_ERRORS as error:
        return "error", _line(error)


def _learner(model: Any) -> tuple[str, str]:
    from turnwise.errors import UserError
    from turnwise.forward.equality import FOREIGN_ERRORS
    from turnwise.forward.logprobs import check_supported
    from turnwise.learning.parity import check_parity

    try:
        check_supported(model)
        found = asyncio.run(check_parity(Dice(model), model, LONGEST, math.inf))[0].learner
        if found <= BOUND:
            return "right", ""
        asyncio.run(check_parity(Dice(model), model, LONGEST, BOUND))
    except UserError as error:
        return "refused", _between(str(error))
    except FOREIGN_ERRORS as error:
        return "error", _line(error)
    return "wrong", f"learner off by {found:.2g} nats"


def _shared(model: Any) -> str:
    from turnwise.errors import UserError
    from turnwise.forward.equality import FOREIGN_ERRORS
    from turnwise.forward.prefix_trees import check_sharing

    try:
        check_sharing(model, LONGEST)
    except UserError:
        return "refused"
    except FOREIGN_ERRORS:
        return "error"
    return "right"


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:90]}"


def _between(message: str) -> str:
    """The reason within a refusal, without what it advises."""
    for advice in (". Set ", ". Choose "):
        message = message.partition(advice)[0]
    if OWN_PASS in message:
        return message.partition(OWN_PASS)[2].removesuffix(")").replace("|", "/")
    for cut in (": ", "; ", ", "):
        message = message.partition(cut)[2] if len(message.partition(cut)[2]) > 90 else message
    return message.replace("|", "/")[:240]


def examine_all(kinds: Sequence[str]) -> Iterator[Row]:
    """Some classes after another, in processes of their own."""
    for start in range(0, len(kinds), TOGETHER):
        several = kinds[start : start + TOGETHER]
        command = [sys.executable, "-m", "benchmarks.architectures", *several]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=SECONDS, check=False
            )
            output = done.stdout
        except subprocess.TimeoutExpired as expired:
            output = (expired.stdout or b"").decode()
        rows = [
            json.loads(line[len(MARK) :]) for line in output.splitlines() if line.startswith(MARK)
        ]
        for row in rows:
            yield Row(**row)
        missing = several[len(rows) :]
        if len(several) > 1 and missing:
            for kind in missing:
                yield from examine_all([kind])
        elif missing:
            yield Row(
                missing[0], missing[0], "error", "error", "error", "ended its process, or hung"
            )


def page(rows: Sequence[Row]) -> str:
    """docs/log/architectures.md."""
    import transformers

    made = [row for row in rows if row.engine != "-"]
    right = {
        part: sum(getattr(row, part).startswith("right") for row in made)
        for part in ("engine", "learner", "shared")
    }
    text = (
        f"A tiny random model (2 to 4 layers of width 32, windows of 24 tokens) of each of the "
        f"{len(rows)} entries that transformers {transformers.__version__} has for causal LMs. "
        f"Right means within {BOUND:.1g} nats on average over each of four histories, 256 units "
        f"of float32's rounding. Of the {len(made)} that could be made, the embedded engine is "
        f"right for {right['engine']}, the learner for {right['learner']}, and "
        f"`learning.share_prefixes` for {right['shared']}; the others are refused in one line "
        f"before a run begins. Made by `python -m benchmarks.architectures --write` on "
        f"{date.today()}, turnwise {version('turnwise')}, torch {version('torch')}."
    )
    return f"# Every class of causal language model\n\n{text}\n\n{listed(rows)}"


def listed(rows: Sequence[Row]) -> str:
    """The kinds of model by what became of them, and why; numbers of nats stand at the kind."""
    found: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        why = row.why.replace(row.name, "it")
        off = ", ".join(NATS.findall(why))
        key = row.engine, row.learner, row.shared, NATS.sub("…", why)
        found.setdefault(key, []).append(f"`{row.kind}`{f' ({off})' if off else ''}")
    lines = [
        "| `model_type` | engine | learner | shared prefixes | why not |",
        "|---|---|---|---|---|",
    ]
    for key, kinds in sorted(found.items(), key=lambda one: (one[0][3] != "", -len(one[1]))):
        lines.append(f"| {', '.join(kinds)} | {' | '.join(key).replace(' | |', ' |  |')} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Examine the named classes here, or all of them in other processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--write", action="store_true", help="write docs/log/architectures.md")
    options = parser.parse_args()
    if options.kinds:
        import torch

        torch.set_num_threads(1)
        logging.disable(logging.WARNING)
        for kind in options.kinds:
            print(MARK + json.dumps(asdict(examine(kind))), flush=True)
        return 0
    from benchmarks.tiny_models import kinds

    rows = []
    for row in examine_all(kinds()):
        print(*asdict(row).values(), sep=" | ", flush=True)
        rows.append(row)
    if options.write:
        PAGE.write_text(page(rows), encoding="utf-8")
    return 0 if all(row.sound for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

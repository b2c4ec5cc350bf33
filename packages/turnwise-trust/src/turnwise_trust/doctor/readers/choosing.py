"""The choice of a reader for a file or a folder: by its name, then by what stands in it."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from turnwise.errors import DataError
from turnwise_trust.doctor.log import Event
from turnwise_trust.doctor.names import STEP_NAMES
from turnwise_trust.doctor.readers import (
    atif,
    history,
    inspect_log,
    nemo_gym,
    tensorboard,
    trl,
    turnwise_run,
    verifiers,
    verl,
)
from turnwise_trust.doctor.readers.lines import first_object
from turnwise_trust.doctor.readers.plain import read_plain

Reader = Callable[[Path], Iterator[Event]]
Choice = tuple[str, str, Reader]
"""The format in words, the framework as remedies name it, and the reader."""

ATIF: Choice = ("ATIF", "", atif.read_file)
PACKED = (b"\x1f\x8b", b"BZ", b"\xfd7", b"PK", b"\x28\xb5")
"""The first bytes of gzip, bzip2, xz, zip and zstandard."""
KNOWN = (
    "a run's folder of turnwise; an output folder of TRL, its trainer_state.json or a "
    "completions parquet; verl's rollout_data_dir, its file logger or console; a run's folder of "
    "prime-rl; traces.jsonl or results.jsonl of verifiers; NeMo Gym's rollouts.jsonl; ATIF; "
    "Inspect's .eval or .json; a history of W&B as .csv or .jsonl; TensorBoard's events; or JSON "
    "lines with a mapping: reward=score step=global_step"
)


def chosen(path: Path, mapping: Mapping[str, str]) -> Choice:
    """The reader of a path. Raises DataError for what none reads."""
    if mapping:
        return "JSON lines", "", lambda file: read_plain(file, mapping)
    try:
        if not path.exists():
            raise DataError(f"{path} does not exist")
        found = _of_folder(path) if path.is_dir() else _of_file(path)
        if found is None:
            raise DataError(f"{path} {_why(b'' if path.is_dir() else _start(path))}")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    return found


def _start(file: Path) -> bytes:
    if not file.stat().st_size:
        raise DataError(f"{file} is empty")
    with file.open("rb") as opened:
        return opened.read(2)


def _why(start: bytes) -> str:
    """Why a file that begins so is not read, and what to do."""
    if start in PACKED:
        return "is packed: unpack it first"
    if start[:1] == b"[":
        return "is one array: write a line for each object, as `jq -c '.[]'` does"
    return f"is in no format that is read. Formats: {KNOWN}"


def _of_folder(folder: Path) -> Choice | None:
    if turnwise_run.is_run(folder):
        return "turnwise run", "turnwise", turnwise_run.read_run
    if trl.state_file(folder) or any(folder.glob("**/completions_*.parquet")):
        return "TRL", "trl", trl.read_folder
    if verifiers.step_folders(folder):
        return "prime-rl run", "prime-rl", verifiers.read_run
    if verl.step_files(folder):
        return "verl rollouts", "verl", verl.read_folder
    if tensorboard.event_files(folder):
        return "TensorBoard events", "", tensorboard.read_folder
    for name in ("traces.jsonl", "results.jsonl", "rollouts.jsonl", "metrics.jsonl"):
        if (folder / name).is_file() and (found := _of_lines(folder / name)):
            return _inside(found, name)
    if any(one.is_file() and _of_json(one) == ATIF for one in folder.glob("**/*.json")):
        return "ATIF", "", atif.read_folder
    return None


def _inside(choice: Choice, name: str) -> Choice:
    """The reader of a folder's one file."""
    label, framework, read = choice
    return label, framework, lambda folder: read(folder / name)


def _of_file(file: Path) -> Choice | None:
    match file.suffix:
        case ".jsonl" | ".ndjson":
            return _of_lines(file)
        case ".json":
            return _of_json(file)
        case ".eval":
            return "Inspect log", "", inspect_log.read_log
        case ".csv":
            return "history", "", history.read_csv
        case ".parquet":
            return "TRL completions", "trl", trl.read_completions
        case ".log" | ".txt" | ".out":
            return "console", "", history.read_console
    if file.name.startswith("events.out.tfevents"):
        return "TensorBoard events", "", tensorboard.read_events
    return None


def _of_json(file: Path) -> Choice | None:
    if file.name == trl.STATE:
        return "TRL", "trl", trl.read_state
    with file.open("rb") as opened:
        start = opened.read(4096)
    if b'"log_history"' in start:
        return "TRL", "trl", trl.read_state
    if b"ATIF-" in start:
        return ATIF
    if b'"eval"' in start or b'"samples"' in start:
        return "Inspect log", "", inspect_log.read_log
    return None


def _of_lines(file: Path) -> Choice | None:
    first = first_object(file)
    fields = set(first)
    if atif.is_atif(first):
        return ATIF
    if nemo_gym.ASKED in fields:
        return "NeMo Gym rollouts", "nemo-gym", nemo_gym.read_rollouts
    if "traces" in fields:
        return "verifiers traces", "prime-rl", verifiers.read_traces
    if {"input", "output", "score"} <= fields:
        return "verl rollouts", "verl", verl.read_rollouts
    if {"completion", "reward"} <= fields:
        return "verifiers results", "prime-rl", verifiers.read_results
    if fields & set(STEP_NAMES):
        return "history", "", history.read_history
    return None

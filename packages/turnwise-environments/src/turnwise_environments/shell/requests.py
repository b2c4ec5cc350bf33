"""Random small folders, and requests about them: words, a command, and the result, worked out here.

A folder has files by path; a file is its text and whether it can be run.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from turnwise_environments.common import words_in
from turnwise_sandbox.tools.workspace import Entry

WORDS = words_in(
    "apple bridge candle delta ember forest garden harbor island jungle kettle ladder meadow "
    "needle orchid pepper quartz river"
)
LEVELS = ("ERROR", "WARN", "INFO", "DEBUG")
CITIES = ("Rome", "Oslo", "Bath", "Lyon")


@dataclass(frozen=True)
class File:
    """Example: File("echo hi\\n", runs=True)."""

    text: str
    runs: bool = False


Folder = Mapping[str, File]


def draw_folder(stream: random.Random) -> dict[str, File]:
    folder: dict[str, File] = {}
    for name in stream.sample(WORDS, stream.randint(2, 3)):
        folder[f"logs/{name}.log"] = File(_log(stream))
    for name in stream.sample(WORDS, stream.randint(1, 2)):
        folder[f"data/{name}.csv"] = File(_table(stream))
    for name in stream.sample(WORDS, stream.randint(2, 3)):
        folder[f"{stream.choice(['notes', 'data'])}/{name}.txt"] = File(_note(stream))
    for name in stream.sample(WORDS, stream.randint(1, 2)):
        folder[f"bin/{name}.sh"] = File(f"#!/bin/sh\necho {stream.choice(WORDS)}\n")
    for name in stream.sample(WORDS, stream.randint(2, 4)):
        place = stream.choice(["", "notes/", "logs/", "old/"])
        text = "" if stream.random() < 0.5 else f"{stream.choice(WORDS)}\n"
        folder[f"{place}{name}{stream.choice(['.tmp', '.bak'])}"] = File(text)
    return folder


def entries_of(folder: Folder) -> dict[str, Entry]:
    return {
        path: Entry("file", file.text.encode(), 0o755 if file.runs else 0o644)
        for path, file in folder.items()
    }


def state_of(entries: Mapping[str, Entry]) -> dict[str, list[object]]:
    """The judged part of a workspace: files and links with their content, and which can be run by
    their owner."""
    return {
        path: [entry.kind, entry.content.hex(), entry.kind == "file" and bool(entry.mode & 0o100)]
        for path, entry in sorted(entries.items())
        if entry.kind != "folder"
    }


def lines_of(text: str) -> list[str]:
    return text.split("\n")[:-1]


def rows_of(text: str) -> list[list[str]]:
    return [line.split(",") for line in lines_of(text)]


def _log(stream: random.Random) -> str:
    rows = [
        f"{stream.choice(LEVELS)} {stream.randint(100, 999)} {stream.choice(WORDS)}"
        for _ in range(stream.randint(4, 12))
    ]
    return _text(rows)


def _table(stream: random.Random) -> str:
    rows = [
        f"{stream.choice(WORDS)},{stream.choice(CITIES)},{stream.randint(10, 99)}"
        for _ in range(stream.randint(4, 8))
    ]
    return _text(rows)


def _note(stream: random.Random) -> str:
    return _text([" ".join(stream.choices(WORDS, k=stream.randint(1, 3))) for _ in range(5)])


NEW_NAMES = ("result.txt", "found.txt", "out/list.txt", "summary.txt", "kept/all.txt")


@dataclass(frozen=True)
class Request:
    """Example: Request("Delete a.txt.", "rm a.txt", {...}, None)."""

    text: str
    command: str
    after: Folder
    """The folder that is wanted; the same as before for a question."""
    answer: str | None = None


Maker = Callable[[random.Random, Folder], Request | None]


def _with(folder: Folder, changes: Mapping[str, File | None]) -> Folder:
    after: dict[str, File] = {**folder}
    for path, file in changes.items():
        if file is None:
            after.pop(path, None)
        else:
            after[path] = file
    return after


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _pick(stream: random.Random, folder: Folder, ending: str) -> str | None:
    found = sorted(path for path in folder if path.endswith(ending))
    return stream.choice(found) if found else None


def _new(stream: random.Random, folder: Folder) -> tuple[str, str]:
    """A path that is not there, and what makes its folder."""
    path = stream.choice([name for name in NEW_NAMES if name not in folder] or ["more.txt"])
    return path, f"mkdir -p {path.rpartition('/')[0]} && " if "/" in path else ""


def delete_kind(stream: random.Random, folder: Folder) -> Request | None:
    ending = stream.choice([".tmp", ".bak", ".log", ".csv"])
    gone = [path for path in folder if path.endswith(ending)]
    return Request(
        f"Delete all files whose names end with {ending}, in all folders.",
        f"find . -type f -name '*{ending}' -delete",
        _with(folder, dict.fromkeys(gone)),
    )


def delete_empty(stream: random.Random, folder: Folder) -> Request | None:
    del stream
    gone = [path for path, file in folder.items() if not file.text]
    return Request(
        "Delete all empty files, in all folders.",
        "find . -type f -empty -delete",
        _with(folder, dict.fromkeys(gone)),
    )


def move_kind(stream: random.Random, folder: Folder) -> Request | None:
    path = _pick(stream, folder, "")
    if path is None or "/" not in path or "." not in path:
        return None
    place, ending = path.rpartition("/")[0], path[path.rindex(".") :]
    target = stream.choice(["archive", "sorted", "moved"])
    moved = [one for one in folder if one.rpartition("/")[0] == place and one.endswith(ending)]
    changes: dict[str, File | None] = dict.fromkeys(moved)
    changes |= {f"{target}/{one.rpartition('/')[2]}": folder[one] for one in moved}
    return Request(
        f"Move the files of the folder {place} whose names end with {ending} to the folder "
        f"{target}, which is new.",
        f"mkdir -p {target} && mv {place}/*{ending} {target}/",
        _with(folder, changes),
    )


def rename(stream: random.Random, folder: Folder) -> Request | None:
    path = _pick(stream, folder, "")
    if path is None or "." not in path:
        return None
    base, ending = path[: path.rindex(".")], path[path.rindex(".") :]
    target = f"{base}_{stream.choice(WORDS)}{ending}"
    return Request(
        f"Rename {path} to {target}.",
        f"mv {path} {target}",
        _with(folder, {path: None, target: folder[path]}),
    )


def replace_word(stream: random.Random, folder: Folder) -> Request | None:
    old, new = stream.sample(WORDS, 2)
    paths = sorted(path for path in folder if path.endswith(".txt") and "/" in path)
    places = sorted({path.rpartition("/")[0] for path in paths})
    if not places:
        return None
    place = stream.choice(places)
    inside = [path for path in paths if path.rpartition("/")[0] == place]
    changes = {
        path: File(folder[path].text.replace(old, new), folder[path].runs) for path in inside
    }
    return Request(
        f"Replace {old} by {new} wherever it stands in the .txt files of the folder {place}.",
        f"sed -i 's/{old}/{new}/g' {place}/*.txt",
        _with(folder, changes),
    )


def sort_lines(stream: random.Random, folder: Folder) -> Request | None:
    path = _pick(stream, folder, ".txt")
    if path is None or not folder[path].text:
        return None
    target, make = _new(stream, folder)
    once = stream.random() < 0.5
    lines = lines_of(folder[path].text)
    ordered = sorted(set(lines) if once else lines)
    words = ", each different line once" if once else ""
    return Request(
        f"Write the lines of {path} to {target}, sorted by the alphabet{words}.",
        f"{make}sort {'-u ' if once else ''}{path} > {target}",
        _with(folder, {target: File(_text(ordered))}),
    )


def collect_level(stream: random.Random, folder: Folder) -> Request | None:
    paths = sorted(path for path in folder if path.startswith("logs/") and path.endswith(".log"))
    if not paths:
        return None
    level = stream.choice(LEVELS)
    target, make = _new(stream, folder)
    lines = [line for path in paths for line in lines_of(folder[path].text) if level in line]
    return Request(
        f"Write all lines with {level} of the .log files in logs to {target}, the files in the "
        "order of their names.",
        f"{make}cat logs/*.log | grep {level} > {target}; true",
        _with(folder, {target: File(_text(lines))}),
    )


def make_runnable(stream: random.Random, folder: Folder) -> Request | None:
    del stream
    changes = {path: File(file.text, True) for path, file in folder.items() if path.endswith(".sh")}
    return Request(
        "Make all .sh files executable, in all folders.",
        "find . -name '*.sh' -exec chmod +x {} +",
        _with(folder, changes),
    )


def drop_lines(stream: random.Random, folder: Folder) -> Request | None:
    path = _pick(stream, folder, ".log")
    if path is None:
        return None
    level = stream.choice(LEVELS)
    lines = [line for line in lines_of(folder[path].text) if level not in line]
    return Request(
        f"Delete the lines with {level} from {path}.",
        f"sed -i '/{level}/d' {path}",
        _with(folder, {path: File(_text(lines), folder[path].runs)}),
    )


def append_line(stream: random.Random, folder: Folder) -> Request | None:
    path = _pick(stream, folder, ".txt")
    if path is None:
        return None
    line = " ".join(stream.sample(WORDS, 2))
    return Request(
        f"Append the line `{line}` to {path}.",
        f"echo '{line}' >> {path}",
        _with(folder, {path: File(f"{folder[path].text}{line}\n", folder[path].runs)}),
    )


def first_lines(stream: random.Random, folder: Folder) -> Request | None:
    path = _pick(stream, folder, ".log")
    if path is None:
        return None
    count, last = stream.randint(1, 4), stream.random() < 0.5
    target, make = _new(stream, folder)
    lines = lines_of(folder[path].text)
    return Request(
        f"Write the {'last' if last else 'first'} {count} lines of {path} to {target}.",
        f"{make}{'tail' if last else 'head'} -n {count} {path} > {target}",
        _with(folder, {target: File(_text(lines[-count:] if last else lines[:count]))}),
    )


def column(stream: random.Random, folder: Folder) -> Request | None:
    path = _pick(stream, folder, ".csv")
    if path is None:
        return None
    number, target = stream.randint(1, 3), _new(stream, folder)
    cells = [row[number - 1] for row in rows_of(folder[path].text)]
    return Request(
        f"Write column {number} of {path} to {target[0]}, a value on each line.",
        f"{target[1]}cut -d, -f{number} {path} > {target[0]}",
        _with(folder, {target[0]: File(_text(cells))}),
    )


def list_files(stream: random.Random, folder: Folder) -> Request | None:
    word = stream.choice(WORDS)
    target, make = _new(stream, folder)
    paths = sorted(path for path, file in folder.items() if word in file.text)
    return Request(
        f"Write the paths of all files that have {word} in them, such as notes/a.txt, to {target}, "
        "sorted by the alphabet.",
        f"{make}grep -rl {word} . --exclude={target.rpartition('/')[2]} | sed 's,^./,,' | sort "
        f"> {target}; true",
        _with(folder, {target: File(_text(paths))}),
    )


def count_lines(stream: random.Random, folder: Folder) -> Request | None:
    path, level = _pick(stream, folder, ".log"), stream.choice(LEVELS)
    if path is None:
        return None
    count = sum(level in line for line in lines_of(folder[path].text))
    command = f"grep -c {level} {path}"
    return Request(f"How many lines of {path} have {level}?", command, folder, str(count))


def count_files(stream: random.Random, folder: Folder) -> Request | None:
    ending = stream.choice([".txt", ".log", ".csv", ".sh", ".tmp", ".bak"])
    count = sum(path.endswith(ending) for path in folder)
    return Request(
        f"How many files have names that end with {ending}, in all folders?",
        f"find . -type f -name '*{ending}' | wc -l",
        folder,
        str(count),
    )


def add_column(stream: random.Random, folder: Folder) -> Request | None:
    path = _pick(stream, folder, ".csv")
    if path is None:
        return None
    rows = rows_of(folder[path].text)
    name = stream.choice(sorted({row[1] for row in rows}) or ["none"])
    total = sum(int(row[2]) for row in rows if row[1] == name)
    return Request(
        f"What is the sum of column 3 over the rows of {path} with {name} in column 2?",
        f"awk -F, '$2 == \"{name}\" {{s += $3}} END {{print s + 0}}' {path}",
        folder,
        str(total),
    )


def different_values(stream: random.Random, folder: Folder) -> Request | None:
    path = _pick(stream, folder, ".csv")
    if path is None:
        return None
    count = len({row[1] for row in rows_of(folder[path].text)})
    return Request(
        f"How many different values are in column 2 of {path}?",
        f"cut -d, -f2 {path} | sort -u | wc -l",
        folder,
        str(count),
    )


def most_lines(stream: random.Random, folder: Folder) -> Request | None:
    del stream
    counts = {
        path: len(lines_of(file.text))
        for path, file in folder.items()
        if path.startswith("logs/") and path.endswith(".log")
    }
    best = max(counts.values(), default=0)
    winners = [path for path, count in counts.items() if count == best]
    if len(winners) != 1:
        return None
    return Request(
        "Which .log file in logs has the most lines? Answer with its path, such as logs/a.log.",
        "wc -l logs/*.log | grep -v total | sort -n | tail -n 1 | awk '{print $2}'",
        folder,
        winners[0],
    )


CHANGES: tuple[Maker, ...] = (
    *(delete_kind, delete_empty, move_kind, rename, replace_word, sort_lines, collect_level),
    *(make_runnable, drop_lines, append_line, first_lines, column, list_files),
)
QUESTIONS: tuple[Maker, ...] = (count_lines, count_files, add_column, different_values, most_lines)

"""A user's file of records: a broken one is told and passed over, whatever kind of file has it."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from turnwise.environments.records import read_each
from turnwise.errors import DataError

OFFSETS = struct.pack("4i", 0, 1, 3, 4)
GOOD = '{"question": "a"}'


def question(record: Mapping[str, Any], where: str) -> str:
    if not isinstance(record.get("question"), str):
        raise DataError(f"{where}: no question")
    return str(record["question"])


def written(folder: Path, text: str | bytes, name: str = "rows.json") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


BROKEN: dict[str, tuple[str, str]] = {
    "no object": ('"a"', "expected a JSON object in braces, found 'a'"),
    "no field": ('{"other": 1}', "no question"),
    "a field of another type": ('{"question": [1]}', "no question"),
    "a number too large": (
        '{"question": "b", "answer": ' + "9" * 5000 + "}",
        "a number has more digits than Python reads",
    ),
    "nested too deeply": (
        '{"question": ' + "[" * 100_000 + "]" * 100_000 + "}",
        "this JSON is nested too deeply: is it broken?",
    ),
    "no comma": ('{"question": "b" "answer": 1}', "broken JSON: Expecting ',' delimiter"),
    "other quotes": ("{'question': 'b, c'}", "broken JSON: Expecting property name enclosed"),
    "quotes in a text": ('{"question": "a "b" c"}', "broken JSON: Expecting ',' delimiter"),
    "one quote in a text": ('{"question": "a 5" b"}', "broken JSON: Expecting ',' delimiter"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("between", ["\n", "\r\n", ",\n", ",\r\n"])
def test_a_broken_record_voids_itself(name: str, between: str, tmp_path: Path) -> None:
    row, problem = BROKEN[name]
    rows = between.join([GOOD, row, GOOD])
    path = written(tmp_path, f"[{rows}]" if "," in between else rows, "rows.json")
    found, told = read_each(path, question)
    assert found == ["a", "a"]
    assert len(told) == 1
    place, _, said = told[0].removeprefix(f"{path}, ").partition(": ")
    assert place.partition(", ")[0] == ("entry 2" if "," in between else "line 2")
    assert place in ("entry 2", "entry 2, line 2", "line 2")
    assert said.startswith(problem)
    assert said.endswith(": left out")


def test_a_record_that_is_no_utf8_voids_itself_in_an_array(tmp_path: Path) -> None:
    path = written(tmp_path, f'[{GOOD}, {{"question": "é"}}, {GOOD}]'.encode("latin-1"))
    found, (told,) = read_each(path, question)
    assert found == ["a", "a"]
    assert told == f"{path}, entry 2: not UTF-8 text, at character 16: convert it: left out"


def test_all_lines_of_an_array_count(tmp_path: Path) -> None:
    rows = [GOOD, json.dumps({"question": "b"}, indent=1), '{\n"question": \n5 6}', GOOD]
    path = written(tmp_path, "\n[" + ",\n".join(rows) + ",\n]\n")
    found, told = read_each(path, question)
    assert found == ["a", "b", "a"]
    assert told == [f"{path}, entry 3, line 8: broken JSON: Expecting ',' delimiter: left out"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f'[{GOOD}, {GOOD}, {{"question": "a', "entry 3, line 1: broken JSON: Unterminated"),
        (f"[\n{GOOD},\n{GOOD}", "entry 2, line 3: broken JSON: Expecting ',' delimiter"),
        (f'[{GOOD},\n{{"question": "a",\n{GOOD},\n{GOOD}]', "entry 2, line 3: broken JSON"),
        (f"[{GOOD}, {GOOD}}}, {GOOD}]", "entry 2, line 1: broken JSON: Expecting ','"),
        (f"[{GOOD}]\n[{GOOD}]", "entry 1, line 2: broken JSON: Extra data"),
        (f'[{GOOD}, {{"question": "5" b"}}, {GOOD}]', "entry 2, line 1: broken JSON: Expecting"),
        ("[" * 100_000, "entry 1: this JSON is nested too deeply"),
    ],
)
def test_an_array_whose_entries_cannot_be_told_apart(
    text: str, problem: str, tmp_path: Path
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(DataError) as error:
        read_each(path, question)
    assert str(error.value).startswith(f"{path}, {problem}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.jsonl", f"[\n{GOOD},\n{GOOD}\n]\n"),
        ("rows.jsonl", f"\ufeff[{GOOD}, {GOOD}]"),
        ("rows.json", f"{GOOD}\n{GOOD}"),
    ],
)
def test_what_a_file_is_says_its_beginning(name: str, text: str, tmp_path: Path) -> None:
    assert read_each(written(tmp_path, text, name), question) == (["a", "a"], [])


def test_lines_of_which_the_first_is_a_list(tmp_path: Path) -> None:
    path = written(tmp_path, f"[1, 2]\n{GOOD}\n{GOOD}", "rows.jsonl")
    found, (told,) = read_each(path, question)
    assert found == ["a", "a"]
    assert told.startswith(f"{path}, line 1: expected a JSON object in braces, found [1, 2]")


def test_a_value_of_parquet_that_python_lacks_voids_no_file(tmp_path: Path) -> None:
    """Such as a time in nanoseconds, which pandas writes, and a text that is no UTF-8."""
    bytes_of = pa.py_buffer(b"\xffabc")
    texts = pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(OFFSETS), bytes_of])
    times = pa.array([1, 2, 3], pa.timestamp("ns"))
    far = pa.array([2**62, 0, 0], pa.timestamp("us"))
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"question": texts, "at": times, "far": far}), path)
    found, told = read_each(path, question)
    assert found == ["ab", "c"]
    assert told == [f"{path}, row 0: no question: left out"]


def test_a_sentence_has_an_end(tmp_path: Path) -> None:
    def read(record: Mapping[str, Any], where: str) -> str:
        raise DataError(f"{where}: {record['question'] * 10_000}")

    with pytest.raises(DataError) as error:
        read_each(written(tmp_path, GOOD), read)
    assert len(str(error.value)) == 500


def test_a_folder_is_no_file_of_records(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{tmp_path}: give a file that is one of .jsonl"):
        read_each(tmp_path, question)
    with pytest.raises(DataError, match=r"none\.jsonl: there is no such file or folder"):
        read_each(tmp_path / "none.jsonl", question)


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl"])
@pytest.mark.parametrize("text", ["", "\n\n", "[]"])
def test_an_empty_file_has_no_records(name: str, text: str, tmp_path: Path) -> None:
    assert read_each(written(tmp_path, text, name), question) == ([], [])

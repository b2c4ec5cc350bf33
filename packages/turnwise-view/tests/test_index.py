"""Files of trajectories as lists need them: few columns, few groups of rows, read again when they
have changed."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dashboard_sample_run import rewrite, rows_of
from turnwise.errors import DataError
from turnwise_view.dashboard.episodes import Query, find
from turnwise_view.dashboard.index import (
    Index,
    read_row,
    read_rows,
    rows_calling,
    rows_with,
    rows_with_problem,
)
from turnwise_view.dashboard.runs import row_count


def newest(run: Path) -> Path:
    return run / "trajectories/step-000003.parquet"


def damage_tokens(file: Path) -> None:
    """Make the columns of tokens unreadable, so that whoever reads them is told."""
    columns = pq.read_metadata(file).row_group(0)
    data = bytearray(file.read_bytes())
    for number in range(columns.num_columns):
        column = columns.column(number)
        if column.path_in_schema.startswith(("ids", "logprob", "advantage")):
            start = column.dictionary_page_offset or column.data_page_offset
            data[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    file.write_bytes(data)


def test_lists_read_no_column_of_tokens(run: Path) -> None:
    damage_tokens(newest(run))
    page = find(run, Query(file="step-000003", outcome="failure"), Index())
    assert page["total"] == 4
    assert find(run, Query(step=3), Index())["total"] == 7
    with pytest.raises(DataError, match="cannot be read"):
        read_row(newest(run), 0)


def test_of_an_episode_only_its_group_of_rows_is_read(run: Path) -> None:
    file, rows = newest(run), rows_of(run)
    rewrite(run, rows, together=2)
    damage_tokens(file)  # of the first two rows
    assert [row["episode"] for row in read_rows(file, [6, 2, 3, 2])] == [
        rows[number]["episode"] for number in (6, 2, 3, 2)
    ]
    with pytest.raises(DataError, match="cannot be read"):
        read_row(file, 1)
    with pytest.raises(DataError, match="step-000003 has no trajectory 7: it has 7"):
        read_rows(file, [0, 7])


def test_a_page_without_conditions_opens_only_the_files_that_it_shows(run: Path) -> None:
    class Counting(Index):
        read = 0

        def table(self, file: Path) -> pa.Table:
            self.read += 1
            return super().table(file)

    index = Counting()
    page = find(run, Query(limit=3), index)
    assert (page["total"], page["next"]) == (17, 3)
    assert index.read == 1
    assert len(find(run, Query(offset=3, limit=100), index)["rows"]) == 14


def test_a_file_that_has_grown_is_read_again(run: Path) -> None:
    index, file = Index(), newest(run)
    assert (row_count(file), index.table(file).num_rows) == (7, 7)
    rows = rows_of(run)
    rewrite(run, [*rows, rows[0]])
    assert (row_count(file), index.table(file).num_rows) == (8, 8)
    file.unlink()
    for look in (row_count, index.table):
        with pytest.raises(DataError, match="cannot be read"):
            look(file)


def test_the_index_keeps_no_more_rows_than_it_may(run: Path) -> None:
    index = Index(kept_rows=9)
    tables = [index.table(file) for file in sorted((run / "trajectories").glob("*.parquet"))]
    assert sum(table.num_rows for table in tables) == 17
    assert index.table(newest(run)) is tables[-1]  # the last one that was looked at
    first = sorted((run / "trajectories").glob("*.parquet"))[0]
    assert index.table(first) is not tables[0]


def test_the_index_keeps_no_long_texts(run: Path) -> None:
    rows = rows_of(run)
    rewrite(run, [{**row, **dict.fromkeys(("prompt", "detail"), "x" * 5000)} for row in rows])
    table = Index().table(newest(run))
    assert [len(table[name][0].as_py()) for name in ("prompt", "detail")] == [200, 200]
    assert "answer" not in table.schema.names


def test_texts_are_found_in_words_of_any_language_and_with_quotes(run: Path) -> None:
    rows, said = rows_of(run), 'Zürich "old" town'
    rows[1]["steps"] = json.dumps([{"observation": [said, 3]}])
    call = {"name": said, "arguments": {"name": "lookup"}}
    rows[1]["actions"] = json.dumps([{"text": "", "calls": [call], "error": said}])
    rewrite(run, rows)
    for text in ("ZÜRICH", '"OLD" town'):
        for look in (rows_with, rows_with_problem):
            assert look(newest(run), text) == [False, True, *[False] * 5]
    assert rows_calling(newest(run), said) == [False, True, *[False] * 5]
    assert rows_calling(newest(run), "lookup") == [True, False, *[True] * 5]

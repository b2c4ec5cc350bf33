"""The search environment as an episode sees it, built-in data and a user's own."""

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from turnwise.environments.registry import make_environment
from turnwise.environments.search.environment import SearchEnvironment
from turnwise.environments.search.library import QuestionFile
from turnwise.errors import DataError, NotSupportedError
from turnwise.types import Action, Task, ToolCall, Trajectory, Turn

REAL_DATA = Path(__file__).parents[3].parent / "shared/data/multihop"
DOCUMENTS = [
    {"title": "Rome", "text": "Rome is the capital of Italy."},
    {"title": "Paris", "text": "Paris is the capital of France.\nIt lies on the Seine."},
]
QUESTIONS = [
    {"question": "What is the capital of Italy?", "answer": "Rome"},
    {"question": "What is the capital of France?", "answers": ["Paris", "Lutetia"]},
]


def write_lines(path: Path, records) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def answers(environment: SearchEnvironment) -> dict[str, list[str]]:
    """Of each question, whichever split it is in."""
    tasks = [*environment.tasks("train"), *environment.tasks("heldout")]
    found = {task.prompt: task.secret["answers"] for task in tasks}
    assert len(found) == len(tasks)
    return found


@pytest.fixture
def own(tmp_path):
    documents = write_lines(tmp_path / "documents.jsonl", DOCUMENTS)
    questions = write_lines(tmp_path / "questions.jsonl", QUESTIONS)
    return {"documents": documents, "file": questions}


async def play(prototype: SearchEnvironment, task: Task, actions) -> Trajectory:
    environment = prototype.fresh()
    prompt = await environment.reset(task.public(), seed=0)
    assert prompt.content == task.prompt
    turns = [Turn(action, await environment.step(action)) for action in actions]
    trajectory = Trajectory(task, group="g", episode=0, seed=0, turns=tuple(turns))
    verdict = await environment.verify(trajectory)
    await environment.close()
    return replace(trajectory, verdict=verdict)


@pytest.mark.long
@pytest.mark.parametrize("split", ["train", "heldout"])
def test_a_perfect_agent_is_shown_every_fact_and_succeeds(library, split):
    for task in library.tasks(split)[:150]:
        trajectory = asyncio.run(play(library, task, library.oracle(task)))
        assert trajectory.verdict.reward == 1.0
        for (_, found), observed in zip(task.secret["chain"], trajectory.observed, strict=False):
            assert found in observed, task


def test_a_perfect_agents_thoughts_say_what_results_are_read_for(library):
    thoughts = {}
    for task in library.tasks("train"):
        thoughts.setdefault(task.info["hops"], []).append(
            [action.thought for action in library.oracle(task)]
        )
    name = "[^ ]+"
    last = f"(Module|Class|Base) of {name}( and {name})?|(Class|Function|Method) with .+"
    for found in thoughts.values():
        assert all(own[0] == "look up" for own in found)
        assert all(re.fullmatch(last, own[-1]) for own in found)
    assert any(own[1] == "look up" for own in thoughts["intersection"])
    assert all(own[1:-1] != ["look up"] for own in thoughts["two"])


def test_answers_seen_but_not_given_earn_nothing(library):
    task = library.tasks("heldout")[0]
    *searches, last = library.oracle(task)
    silent = asyncio.run(play(library, task, searches))
    hedged = asyncio.run(
        play(library, task, [*searches, Action("", answer=f"{last.answer} or str")])
    )
    assert (silent.verdict.reward, hedged.verdict.reward) == (0.0, 0.0)
    assert not hedged.verdict.success


@pytest.mark.long
def test_results_of_the_question_in_the_prompt():
    environment = make_environment(
        "search", {"access": "prompt", "tasks": {"inverse": False, "hops": ["one"]}}
    )
    assert environment.tools() == []
    for task in environment.tasks("heldout")[:50]:
        shown = asyncio.run(environment.reset(task.public(), seed=0)).content
        question, *results = shown.split("\n")
        assert question == task.prompt
        assert [line[:4] for line in results] == ["[1] ", "[2] ", "[3] "]
        assert any(task.secret["answers"][0] in line for line in results)
        (action,) = environment.oracle(task)
        assert action.answer == task.secret["answers"][0]
    nothing = environment.ablations()["no_search"]
    assert asyncio.run(nothing.reset(task.public(), seed=0)).content.endswith("\nNo results.")


@pytest.mark.long
def test_neither_tool_nor_results():
    environment = make_environment("search", {"access": "none", "tasks": {"hops": ["two"]}})
    task = environment.tasks("train")[0]
    assert environment.tools() == []
    assert environment.ablations() == {}
    trajectory = asyncio.run(play(environment, task, environment.oracle(task)))
    assert trajectory.verdict.success
    assert len(trajectory.turns) == 1


@pytest.mark.long
def test_questions_of_some_kinds_alone(library):
    environment = make_environment("search", {"tasks": {"hops": ["two", "three"]}})
    for split in ("train", "heldout"):
        wanted = [one for one in library.tasks(split) if one.info["hops"] in ("two", "three")]
        assert environment.tasks(split) == wanted


def test_a_result_is_a_line_with_a_card_and_cut_by_whoever_counts_tokens(library):
    lines = library.search("TarFile").splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("[1] Class TarFile. Module: tarfile. Base: object. TarFile(")
    environment = library.fresh()
    environment.truncate = lambda text, max_tokens: text[:max_tokens].rstrip()
    assert environment.search("TarFile").splitlines()[0] == "[1] Class TarFile. Module: tarfile."
    assert library.search("TarFile") != environment.search("TarFile")
    assert library.search("zzzzqqq") == "No results."
    call = ToolCall("search", {"query": "  "})
    step = asyncio.run(library.fresh().step(Action("", calls=(call,))))
    assert not step.results[0].ok
    assert "query is empty" in step.observation.content


def test_the_spec_identifies_the_data(library, own):
    mine = SearchEnvironment(QuestionFile(**own))
    assert (library.spec.name, library.spec.reference_scores) == (
        "search",
        {"noop": 0.0, "oracle": 1.0},
    )
    assert len(mine.spec.data_hash) == 64
    assert (
        mine.spec.data_hash
        == SearchEnvironment(QuestionFile(**own)).spec.data_hash
        != library.spec.data_hash
    )


def test_snapshots(library):
    environment = library.fresh()
    environment.restore(environment.snapshot())
    with pytest.raises(ValueError, match="not a snapshot"):
        environment.restore(b"x")


def test_own_documents_and_questions(own):
    environment = SearchEnvironment(QuestionFile(**own))
    assert environment.search("capital France").splitlines()[0] == (
        "[1] Paris Paris is the capital of France. It lies on the Seine."
    )
    assert answers(environment) == {
        "What is the capital of Italy?": ["Rome"],
        "What is the capital of France?": ["Paris", "Lutetia"],
    }
    assert list(environment.task_set.warnings) == []
    with pytest.raises(NotSupportedError, match="no known way"):
        environment.oracle(Task("a", "What is the capital of Italy?"))


def test_half_a_character_in_a_document_is_shown_as_a_question_mark(tmp_path, own):
    path = write_lines(tmp_path / "cut.jsonl", [{"title": "Rome", "text": "Cut \ud83d"}])
    environment = SearchEnvironment(QuestionFile(own["file"], documents=str(path)))
    assert environment.search("rome") == "[1] Rome Cut ?"


def test_a_folder_of_text_files(tmp_path, own):
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("One two.\n\n" + "word " * 150)
    (folder / "deep/b.md").write_text("# Title\n\nText of b.")
    (folder / "c.pdf").write_bytes(b"\xff")
    environment = SearchEnvironment(QuestionFile(own["file"], documents=str(folder)))
    assert [document.id for document in environment.documents] == [
        "a#0",
        "a#1",
        "a#2",
        "deep/b#0",
        "deep/b#1",
    ]
    assert list(environment.task_set.warnings) == [
        "2 of 2 questions have no accepted answer in any document"
    ]


def test_a_json_array_with_other_field_names(tmp_path, own):
    path = tmp_path / "documents.json"
    path.write_text(json.dumps([{"name": "Rome", "contents": "Capital of Italy."}]))
    environment = SearchEnvironment(QuestionFile(own["file"], documents=str(path)))
    assert environment.search("italy") == "[1] Rome Capital of Italy."
    assert list(environment.task_set.warnings) == [
        "1 of 2 questions have no accepted answer in any document"
    ]


def test_the_same_question_is_one_task_in_one_split(tmp_path, own):
    again = [{"question": "what is the capital of italy", "answer": "Roma"}]
    questions = write_lines(tmp_path / "twice.jsonl", [*QUESTIONS, *again])
    environment = SearchEnvironment(QuestionFile(questions, documents=own["documents"]))
    assert ["Rome", "Roma"] in answers(environment).values()
    assert len(answers(environment)) == 2


BROKEN_DOCUMENTS = {
    "line 1: broken JSON": '{"title": \n',
    "line 1: there is no field 'text' or 'contents'": '{"title": "a"}\n',
    "line 1: there is no field 'title' or 'name'": '{"text": "a"}\n',
    "line 1: 'text' must be a string": '{"title": "a", "text": 5}\n',
    "entry 1: expected a JSON object": "[1]\n",
    "no documents with text": "\n",
}


BROKEN_QUESTIONS = {
    "line 1: 'question' must be there": '{"answer": "a"}\n',
    "line 1: there is no field 'answer'": '{"question": "b"}\n',
    "line 1: 'answers' must be": '{"question": "a", "answers": []}\n',
    "line 1: 'answer' must be": '{"question": "a", "answer": 3}\n',
    "there are no questions": "",
}


BROKEN = [("documents", *one) for one in BROKEN_DOCUMENTS.items()]
BROKEN += [("file", *one) for one in BROKEN_QUESTIONS.items()]


@pytest.mark.parametrize(("which", "message", "text"), BROKEN)
def test_broken_files_are_named_by_file_and_line(tmp_path, own, which, message, text):
    path = tmp_path / "broken.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=re.escape(message)) as error:
        SearchEnvironment(QuestionFile(**own | {which: str(path)}))
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_broken_records_are_left_out_and_told(tmp_path, own):
    path = tmp_path / "broken.jsonl"
    lines = [
        json.dumps(QUESTIONS[0]).encode(),
        b'{"question": 3}',
        b'{"question": "\xff"}',
        *[b"{"] * 5,
    ]
    path.write_bytes(b"\n".join(lines))
    environment = SearchEnvironment(QuestionFile(**own | {"file": str(path)}))
    assert len(answers(environment)) == 1
    told = environment.task_set.warnings
    assert [f"line {number}: " in one for number, one in enumerate(told[:5], 2)] == [True] * 5
    assert "line 3: not UTF-8 text, at character 15: convert it" in told[1]
    assert told[5:] == [f"{path}: 2 more records are broken: left out"]


def test_search_r1s_rows_and_corpus(tmp_path):
    """Rows of verl's in a Parquet file, and passages whose first line is the title."""
    row = {"prompt": [{"role": "user", "content": "Answer. Question: Where is Rome?"}]}
    row |= {"reward_model": {"ground_truth": {"target": ["Italy"]}, "style": "rule"}}
    plain = row | {"extra_info": {"question": "Rome?"}}
    named = plain | {"question": "where is rome?", "golden_answers": ["in Italy", "Italy"]}
    empty = {"question": "?", "golden_answers": []}
    pq.write_table(pa.Table.from_pylist([named, plain, row, empty]), tmp_path / "test.parquet")
    corpus = write_lines(tmp_path / "c.jsonl", [{"id": "0", "contents": '"Rome"\nIt is in Italy.'}])
    environment = SearchEnvironment(QuestionFile(str(tmp_path / "test.parquet"), documents=corpus))
    assert answers(environment) == {
        "where is rome?": ["in Italy", "Italy"],
        "Rome?": ["Italy"],
        "Answer. Question: Where is Rome?": ["Italy"],
    }
    assert environment.search("rome") == "[1] Rome It is in Italy."
    assert "test.parquet, row 3: 'golden_answers' must be" in environment.task_set.warnings[0]
    (tmp_path / "test.parquet").write_text("PAR")
    with pytest.raises(DataError, match="not a Parquet file"):
        SearchEnvironment(QuestionFile(str(tmp_path / "test.parquet"), documents=corpus))


def test_files_that_are_not_there_or_not_text(tmp_path, own):
    with pytest.raises(DataError, match="no such file or folder"):
        SearchEnvironment(QuestionFile(own["file"], documents=str(tmp_path / "none")))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no documents with text"):
        SearchEnvironment(QuestionFile(own["file"], documents=str(tmp_path / "empty")))
    (tmp_path / "binary.jsonl").write_bytes(b'{"title": "\xff"}')
    with pytest.raises(DataError, match="not UTF-8"):
        SearchEnvironment(QuestionFile(own["file"], documents=str(tmp_path / "binary.jsonl")))
    (tmp_path / "table.csv").write_text("a,b")
    with pytest.raises(DataError, match=r"one of \.jsonl, \.json, \.parquet"):
        SearchEnvironment(QuestionFile(own["file"], documents=str(tmp_path / "table.csv")))


@pytest.mark.skipif(not REAL_DATA.is_dir(), reason="the shared data is not here")
@pytest.mark.parametrize("name", ["2wiki_test.jsonl", "hotpotqa_test.jsonl"])
def test_real_multi_hop_data(name):
    questions = QuestionFile(str(REAL_DATA / name), documents=str(REAL_DATA / "2wiki_corpus.json"))
    environment = SearchEnvironment(questions, result_tokens=64)
    assert len(environment.documents) == 6119
    train, heldout = environment.tasks("train"), environment.tasks("heldout")
    assert len(train) + len(heldout) == 200
    assert min(len(train), len(heldout)) > 60
    assert environment.search("Teutberga").startswith("[1] Teutberga Teutberga( died")
    assert "of 200 questions have no accepted answer" in environment.task_set.warnings[0]

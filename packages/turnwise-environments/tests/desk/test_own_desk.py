"""A desk of one's own: both formats, what is left out, tools that fail, differences, snapshots."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from desk_library import DATABASE, LEND, TASKS, TAU2, TOOLS, written
from environment_playing import (
    answered,
    calling,
    judged,
    played,
    reward,
    steps_of,
    verdict_of,
)
from turnwise.environments.base import Environment
from turnwise.environments.registry import make_environment
from turnwise.errors import ConfigError, DataError, InfrastructureError, UserError
from turnwise.types import Action, Task, ToolCall
from turnwise_environments.choosing import all_tasks
from turnwise_environments.desk.own import was_told
from turnwise_environments.desk.own_tools import differences, write
from turnwise_environments.measurement import NOTHING, _goes_on, played_all, success


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return written(tmp_path)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return make_environment("own_desk", written(tmp_path_factory.mktemp("library")))


def wanting(environment: Environment, words: str) -> Task:
    (found,) = [one for one in all_tasks(environment) if words in one.prompt]
    return found


def test_what_doing_nothing_solves_is_left_out_with_a_line(options: dict[str, Any]) -> None:
    environment = make_environment("own_desk", options)
    assert len(all_tasks(environment)) == len(TASKS) - 1
    idle, failing = environment.task_set.warnings
    assert idle.startswith("1 tasks solved by doing nothing")
    assert failing == "1 tasks have an action of their own that fails: kept"
    Path(options["tasks"]["file"]).write_text(json.dumps(TASKS[4:5]))
    with pytest.raises(DataError, match="no tasks to play in it; 1 tasks solved by doing nothing"):
        make_environment("own_desk", options)


def test_tau2s_format(tmp_path: Path) -> None:
    environment = make_environment("own_desk", written(tmp_path, TAU2))
    tasks = all_tasks(environment)
    assert all(
        "reason for call: Borrow Rivers.\nknown info: You are Ada." in t.prompt for t in tasks
    )
    told = sorted(tuple(task.secret["outputs"]) for task in tasks)
    assert told == [(), ("14",)], "one that names assertions and has none is kept"
    assert success(played_all(environment, tasks, [environment.oracle(t) for t in tasks])) == 1.0
    assert len(environment.task_set.warnings) == 4
    assert all(line.startswith("1 tasks ") for line in environment.task_set.warnings)


def test_a_conversation_and_its_verdict(library: Environment) -> None:
    task = wanting(library, "Borrow Rivers")
    assert task.prompt == "Be {kind}.\nCustomer: You are Ada. Borrow Rivers."
    lend = calling("lend", **LEND["kwargs"])
    talk = [answered("One moment."), answered("Done.")]
    play = played(library, task, lend, *talk)
    assert play.seen[1][0] == "lent"
    assert "Customer: Yes" in play.seen[2][0]
    assert play.trajectory.reward == 1.0
    assert reward(library, task, lend) == 0.0, "the conversation has not ended"
    assert reward(library, task, *talk) == 0.0
    assert reward(library, task, lend, calling("remove", book="b2"), *talk) == 0.0
    other = calling("lend", book="b1", reader="r1", days=15)
    assert reward(library, task, other, *talk) == 0.0
    assert reward(library, task, lend, lend, *talk) == 1.0, "the second changes nothing"


def test_what_has_to_be_told_is_told_by_the_agent(library: Environment) -> None:
    task = wanting(library, "what Rivers costs")
    look = calling("show_book", book="b1")
    assert reward(library, task, look, NOTHING, NOTHING) == 0.0, "only seen"
    told = [answered("It costs $1234.50, no: $1,234.5."), NOTHING]
    assert reward(library, task, *told) == 1.0
    dump = answered(" ".join(f"{number / 2}" for number in range(2460, 2480)) + " 1")
    assert reward(library, task, dump, dump) == 0.0


@pytest.mark.parametrize(
    ("expected", "said", "right"),
    [
        ("23", "the 23rd and 1234", False),
        ("23", "it is 23.", True),
        ("23", "it is 23.5", False),
        ("3", "2.3", False),
        ("1,234", "$1234", True),
        ("Gate B", "at gate  b!", True),
        ("Gate B", "at gate bb", False),
        ("7", " ".join(map(str, range(20))), True),
        ("7", " ".join(map(str, range(21))), False),
    ],
)
def test_was_told(expected: str, said: str, right: bool) -> None:
    assert was_told(expected, ["hello", said]) is right


def test_a_tool_that_ends_the_conversation(library: Environment) -> None:
    task = wanting(library, "You want a person")
    passing = calling("pass_on", why="asked")
    both = Action("", calls=(*passing.calls, ToolCall("remove", {"book": "b1"})))
    play = played(library, task, answered("The fee is 30."), both)
    assert play.trajectory.reward == 1.0
    assert len(steps_of(play)[-1].results) == 1
    assert judged(library, task, passing).parts == {"database": 1, "told": 0, "ended": 1}


def test_what_a_tool_raises_is_the_agents_to_read(library: Environment) -> None:
    mistakes = {
        "KeyError: 'b9'": calling("show_book", book="b9"),
        "'reader': Field required": calling("lend", book="b1"),
        "valid integer": calling("lend", book="b1", reader="r1", days="many"),
        "'data': Extra": calling("show_book", book="b1", data={}),
        "no tool": calling("helper", text=""),
    }
    play = played(library, wanting(library, "Borrow Rivers"), *mistakes.values())
    for text, words in zip(play.trajectory.observed, mistakes, strict=True):
        assert text.startswith("Error: ")
        assert words in text


def test_tools_are_the_modules_public_functions(options: dict[str, Any]) -> None:
    guarded = make_environment("own_desk", options, {"write": "refuse"})
    schemas = {one.name: one for one in guarded.tools()}
    assert list(schemas) == ["lend", "pass_on", "remove", "show_book"]
    assert schemas["show_book"].description == "What is known of a book."
    assert list(schemas["lend"].schema["parameters"]["properties"]) == ["book", "reader", "days"]
    assert schemas["lend"].consequence == "write"
    task = wanting(guarded, "Borrow Rivers")
    play = played(guarded, task, calling("lend", **LEND["kwargs"]))
    assert "not permitted" in play.seen[1][0]


def test_a_service_that_is_gone_is_no_mistake_of_the_agents(options: dict[str, Any]) -> None:
    file = Path(options["tools"])
    gone = 'def ask(data) -> str:\n    """Ask."""\n    raise ConnectionError("gone")\n'
    file.write_text(f"{file.read_text()}\n{gone}")
    environment = make_environment("own_desk", options)
    with pytest.raises(InfrastructureError, match="gone"):
        played(environment, wanting(environment, "Borrow Rivers"), calling("ask"))


CLASSES = """
class Lend:
    @staticmethod
    def invoke(data, book: str, reader: str) -> str:
        data["books"][book]["reader"] = reader
        return "lent"
    @staticmethod
    def get_info():
        parameters = {"type": "object", "properties": {"book": {"type": "string"}}}
        function = {"name": "lend", "description": "Lend it.", "parameters": parameters}
        return {"type": "function", "function": function}

ALL_TOOLS = [Lend]
"""


def test_tool_classes_as_tau_bench_has_them(tmp_path: Path) -> None:
    environment = make_environment("own_desk", written(tmp_path, TASKS[:1], CLASSES))
    (lend,) = environment.tools()
    assert (lend.name, lend.description) == ("lend", "Lend it.")
    assert lend.schema["parameters"]["properties"]["book"] == {"type": "string"}
    (task,) = all_tasks(environment)
    assert success(played_all(environment, [task], [environment.oracle(task)])) == 1.0


async def test_a_restored_episode_shows_rows_as_it_did(library: Environment) -> None:
    task = wanting(library, "Borrow Rivers")
    script = [calling("lend", **LEND["kwargs"]), calling("show_book", book="b1")]
    assert await _goes_on(library, task, task, script)


def test_differences_are_written_back() -> None:
    after = copy.deepcopy(DATABASE)
    after["books"]["b1"]["days"] = 3
    del after["readers"]["r2"]
    after["readers"]["r3"] = None
    after["log"] = ["a"]
    found = differences(DATABASE, after)
    assert set(found) == {"books", "log", "readers"}
    assert found["readers"] == {"rows": {"r2": [], "r3": [None]}}
    data: dict[str, Any] = copy.deepcopy(DATABASE)
    write(found, data)
    assert data == after
    data["log"].append("b")
    assert found["log"] == {"whole": [["a"]]}
    assert differences(after, {}) == {name: {"whole": []} for name in after}
    assert differences(after, copy.deepcopy(after)) == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": {"heldout_share": 2}}, "environment.options.tasks lacks file: set it"),
        ({"tasks": {"file": "a", "heldout_share": 2}}, "'tasks.heldout_share' is 2"),
        ({"tools": "nowhere.py"}, "desk: tools file nowhere.py: there is no such file"),
        ({"policy": "nowhere.md"}, "nowhere.md: there is no such file: give the policy"),
        ({"database": "nowhere"}, "nowhere: there is no such file or folder"),
        ({"user": {"model": "m"}}, "environment.options.user lacks url: set it"),
        ({"user": {"url": "u", "model": "m"}}, "write http://host:port/v1"),
        ({"user": {"url": "http://u", "model": "m", "seconds": 0}}, "'user.seconds' is 0"),
        ({"user": {"url": "http://u", "model": "m", "tries": 1}}, "unknown option 'user.tries'"),
        (
            {"user": {"url": "http://u", "model": "m", "attempts": "x"}},
            "'user.attempts' is 'x': give a whole number",
        ),
        ({"user": {"url": "http://u", "model": "m", "key_variable": "NO_KEY_X"}}, "NO_KEY_X"),
    ],
)
def test_options_that_make_no_sense(
    options: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        make_environment("own_desk", options | change)


TOOLKIT = """
from types import SimpleNamespace
from pydantic import BaseModel

class Book(BaseModel):
    title: str
    reader: str
    days: int = 0
    fee: float

class Library(BaseModel):
    books: dict[str, Book]
    readers: dict[str, dict[str, str]]

class LibraryTools:
    db: Library
    def __init__(self, db): self.db = db
    def use_tool(self, name): ...
    def get_tools(self):
        parameters = {"type": "object", "properties": {"book": {"type": "string"}}}
        schema = {"function": {"description": "Of a book.", "parameters": parameters}}
        return dict.fromkeys(("show_book", "lend"), SimpleNamespace(openai_schema=schema))
    def show_book(self, book: str) -> Book:
        return self.db.books[book]
    def lend(self, book: str, reader: str) -> str:
        self.db.books[book].reader = reader
        return "lent"
"""


def test_a_toolkit_over_a_database(tmp_path: Path) -> None:
    """As tau2-bench has them: methods of a class over a model of the tables."""
    environment = make_environment("own_desk", written(tmp_path, TAU2[:1], TOOLKIT))
    (task,) = all_tasks(environment)
    wanted = {"title": "Rivers", "reader": "r1", "days": 0, "fee": 1234.5}
    assert task.secret["changes"] == {"books": {"rows": {"b1": [wanted]}}}
    assert [one.schema["description"] for one in environment.tools()] == ["Of a book."] * 2
    assert judged(environment, task, *environment.oracle(task)).success
    shown = calling("show_book", book="b1")
    assert json.loads(played(environment, task, shown).trajectory.observed[0])["fee"] == 1234.5


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ("x = 1", "no tools: write public functions whose first parameter is data"),
        ("async def look(data): ...", "tool look is async"),
        ("def look(data, *words): ...", "name every parameter"),
        ("class Look: ...\nALL_TOOLS = [Look]", "tool class Look has no invoke"),
        ("def look(data): ...\nTERMINATE_TOOLS = ['end']", "names 'end', which is no tool"),
        ("def look(): ...\nALL_TOOLS = [look]", "tool look is no function of data"),
        ("ALL_TOOLS = ['look']", "tool 'look' is no function of data"),
        ("def look(data, day: 'Day'): ...", "tool look is no .*: name 'Day' is not defined"),
        ("class Day: ...\ndef look(data, day: Day): ...", "tool look: give .* schema"),
        ("def look(data, self: int): ...", "tool look: its parameters cannot be given: dupl"),
    ],
)
def test_modules_that_are_no_tools(tmp_path: Path, tools: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_environment("own_desk", written(tmp_path, TASKS, tools))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"actions": []}, "entry 1: there is no 'instruction'"),
        ({"instruction": "x"}, "'actions' and 'outputs' have to be lists"),
        ({"instruction": "x", "actions": [{"kwargs": {}}]}, "an action is {name, kwargs}"),
        ({"instruction": "x", "actions": [], "script": ["ab", "c"]}, "the script a list of"),
        ({"instruction": "x", "actions": [{"name": "fly"}]}, "there is no tool 'fly'"),
        ({"user_scenario": "x", "evaluation_criteria": [1]}, "has to be an object"),
        ({"user_scenario": "x", "evaluation_criteria": {"actions": ["a"]}}, "an action is {name"),
        ({"evaluation_criteria": {"actions": []}, "initial_state": [1]}, "a state or a conv"),
    ],
)
def test_records_that_are_broken(tmp_path: Path, record: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make_environment("own_desk", written(tmp_path, [record]))


CALCULATOR = (
    TOOLS
    + '''

def calculate(data, expression: str) -> str:
    """Work out an expression."""
    return str(eval(expression))

def leave(data) -> str:
    """Leave."""
    data["left"] = True
    raise SystemExit(0)

def flood(data) -> str:
    """Tell a lot."""
    return "x\\ud800" * 3_000_000
'''
)


def all_train(options: dict[str, Any]) -> dict[str, Any]:
    return {**options, "tasks": {**options["tasks"], "heldout_share": 0.0}}


@pytest.mark.slow
def test_a_tool_that_holds_the_interpreter_is_stopped_and_the_episode_goes_on(
    tmp_path: Path,
) -> None:
    """In this process `9**(9**8)` would stop the event loop with all its deadlines."""
    options = written(tmp_path, tools=CALCULATOR)
    environment = make_environment("own_desk", all_train(options))
    environment.tool_deadline = 2.0
    task = next(one for one in environment.tasks("train") if one.info["actions"] == 1)
    calls = [("calculate", {"expression": "9**(9**8)"}), ("leave", {}), ("flood", {})]
    hung = [calling(name, **values) for name, values in calls]
    play = played(environment, task, *hung, *environment.oracle(task))
    observed = play.trajectory.observed
    assert observed[0] == "Error: calculate: it was stopped after 2 s"
    assert observed[1] == "Error: leave: SystemExit"
    assert observed[2].startswith("x?x?")
    assert observed[2].endswith("more characters are not shown]")
    assert verdict_of(play).success


def test_tools_of_the_same_process_do_the_same(tmp_path: Path) -> None:
    spoiling = "\ndef spoil(data) -> str:\n    data.clear()\n    raise KeyError('too late')\n"
    odd = "\ndef odd(data) -> dict:\n    return {(1, 2): 'no JSON'}\n"
    options = all_train(written(tmp_path, tools=TOOLS + spoiling + odd))
    apart, here = (
        make_environment("own_desk", {**options, "isolated": isolated})
        for isolated in (True, False)
    )
    tasks = apart.tasks("train")
    plays = [
        [play.seen for play in played_all(one, tasks, [one.oracle(task) for task in tasks])]
        for one in (apart, here)
    ]
    assert plays[0] == plays[1]
    script = [calling("odd"), calling("spoil"), *apart.oracle(tasks[0])]
    spoilt = [played(one, tasks[0], *script) for one in (apart, here)]
    assert [verdict_of(play).parts["database"] for play in spoilt] == [0.0, 0.0]
    assert spoilt[0].seen == spoilt[1].seen
    assert spoilt[0].seen[1][0].startswith("Error: odd: TypeError")


def test_a_tool_that_ends_the_program_does_not_end_it(tmp_path: Path) -> None:
    leaving = {"instruction": "Leave.", "actions": [{"name": "leave", "kwargs": {}}], "outputs": []}
    made = make_environment("own_desk", written(tmp_path, [*TASKS, leaving], CALCULATOR))
    assert "2 tasks have an action of their own that fails: kept" in made.task_set.warnings

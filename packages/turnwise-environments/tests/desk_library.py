"""A small desk of one's own: a library with two tables, four tools, and tasks in both formats."""

import json
from pathlib import Path
from typing import Any

TOOLS = '''
from turnwise.tools.tool import consequential

TERMINATE_TOOLS = ["pass_on"]

def show_book(data, book: str) -> dict:
    """What is known of a book.

    More on it."""
    return data["books"][book]

@consequential("write")
def lend(data: dict, book: str, reader: str, days: int = 14) -> str:
    """Lend a book to a reader."""
    if data["books"][book]["reader"]:
        return "Error: it is lent"
    data["books"][book] |= {"reader": reader, "days": days}
    return "lent"

def remove(data, book: str) -> str:
    """Take a book out of the catalogue."""
    del data["books"][book]
    return "removed"

def pass_on(data, why: str) -> str:
    """Pass the customer on to a person."""
    data["passed_on"] = [*data.get("passed_on", []), why]
    return "passed on"

def _hidden(data): ...
def helper(text: str): ...
'''

DATABASE = {
    "books": {
        "b1": {"title": "Rivers", "reader": "", "days": 0, "fee": 1234.5},
        "b2": {"title": "Clouds", "reader": "r2", "days": 7, "fee": 30},
    },
    "readers": {"r1": {"name": "Ada"}, "r2": {"name": "Ben"}},
}


def action(name: str, **kwargs: Any) -> dict[str, Any]:
    return {"name": name, "kwargs": kwargs}


LEND = action("lend", book="b1", reader="r1")
TASKS: list[dict[str, Any]] = [
    {"user_id": "r1", "instruction": "You are Ada. Borrow Rivers.", "actions": [LEND]},
    {
        "user_id": "r1",
        "instruction": "You are Ada and ask what Rivers costs.",
        "actions": [action("show_book", book="b1")],
        "outputs": ["1,234.5"],
    },
    {"instruction": "Ask for Clouds to be removed.", "actions": [action("remove", book="b2")]},
    {
        "instruction": "You want a person, and the fee of Clouds.",
        "actions": [action("pass_on", why="asked")],
        "outputs": ["30"],
        "script": [["fee", "Clouds, I said."]],
    },
    {"instruction": "You want what is not allowed.", "actions": []},
    {
        "instruction": "Borrow a book that is not there, then Rivers.",
        "actions": [action("lend", book="b9", reader="r1"), LEND],
    },
]


def tau2(identity: str, actions: list[dict[str, Any]], **criteria: Any) -> dict[str, Any]:
    scenario = {
        "persona": None,
        "instructions": {"reason_for_call": "Borrow Rivers.", "known_info": "You are Ada."},
    }
    return {
        "id": identity,
        "user_scenario": scenario,
        "initial_state": criteria.pop("initial_state", None),
        "evaluation_criteria": {"actions": actions, **criteria},
    }


TAU2_LEND = {"name": "lend", "arguments": {"book": "b1", "reader": "r1"}, "info": None}
TAU2 = [
    tau2("0", [TAU2_LEND], communicate_info=["14"], nl_assertions=["polite"]),
    tau2("1", [], communicate_info=[], nl_assertions=["refuses"]),
    tau2("2", [TAU2_LEND], nl_assertions=["polite"], reward_basis=["DB", "NL_ASSERTION"]),
    tau2("5", [TAU2_LEND], nl_assertions=[], reward_basis=["DB", "NL_ASSERTION"]),
    tau2("3", [{**TAU2_LEND, "requestor": "user"}], reward_basis=["DB"]),
    tau2("4", [TAU2_LEND], initial_state={"message_history": [{"role": "user"}]}),
]


def written(
    folder: Path, tasks: list[dict[str, Any]] = TASKS, tools: str = TOOLS
) -> dict[str, Any]:
    """Writes the desk; gives the options of its environment."""
    files = {"tasks.json": json.dumps(tasks), "tools.py": tools, "policy.md": "Be {kind}.\n"}
    (folder / "data").mkdir(exist_ok=True)
    for name, table in DATABASE.items():
        (folder / "data" / f"{name}.json").write_text(json.dumps(table))
    for name, text in files.items():
        (folder / name).write_text(text)
    return {
        "tasks": {"file": str(folder / "tasks.json")},
        "database": str(folder / "data"),
        "tools": str(folder / "tools.py"),
        "policy": str(folder / "policy.md"),
    }

"""The command `audit`: its page, and its verdict."""

import json
import re
from pathlib import Path

import pytest

from tests.commands.shell import Shell
from turnwise.storage.audits import Finding
from turnwise_trust.audit.keeping import joined
from turnwise_trust.audit.openenv import CHECK_IDS, PANEL
from turnwise_trust.audit.probes import PROBES
from turnwise_trust.audit.quick import tried
from turnwise_trust.audit.replay import replay
from turnwise_trust.audit.search import reward_search
from turnwise_trust.audit.subject import subject_of
from turnwise_trust.audit.table import ATTACKS
from turnwise_trust.page import Page

IDLE_IS_PAID = """
from turnwise import Environment, Task, Verdict

class Paid(Environment):
    def tasks(self, split):
        return [Task(f"{split}{number}", f"Book flight {number}.") for number in range(8)]

    def verify(self, trajectory):
        print("this is not on the page")
        return Verdict(1.0, True)
"""


@pytest.fixture
def shell(capfd: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capfd)


@pytest.mark.long
def test_an_environment_that_pays_for_nothing_is_not_certified(shell: Shell, tmp_path: Path):
    file, page = tmp_path / "paid.py", tmp_path / "page.md"
    file.write_text(IDLE_IS_PAID)
    found = shell("audit", f"{file}:Paid", "--json", "--page", page, code=1).json
    assert found["verdict"].startswith("Not certified for RL: an agent that does nothing")
    assert "an agent that does nothing" in page.read_text()


@pytest.mark.long
def test_the_same_seed_gives_the_same_hash():
    long = (replay, reward_search)
    probes = {name: one for name, one in PROBES.items() if one not in long}
    pages = [tried(subject_of("frozen_lake", {}, 3, n), probes).plain() for n in (0, 0, 1)]
    assert pages[0]["hash"] == pages[1]["hash"] != pages[2]["hash"]
    assert pages[0] != pages[1]  # seconds of verdicts
    assert pages[0]["verdict"].startswith("Certified")


@pytest.mark.long
def test_an_audit_that_had_no_time_goes_on_with_its_file(shell: Shell, tmp_path: Path):
    kept, place = tmp_path / "kept.json", Path(__file__).parent / "asking.py"
    begun = [f"{place}:Asking", "--tasks", "4", "--keep", kept, "--json"]
    first = shell("audit", *begun, "--seconds", "4").json
    assert first["verdict"].startswith("Certified for RL in part")
    held = json.loads(kept.read_text())
    held |= {"findings": [], "unmeasured": ["the reward's form", "half of one"]}
    kept.write_text(json.dumps(held))
    row, *others, rest = shell("audit", *begun).json["findings"]
    assert row["check"], row["openenv"] == ("well-formed reward", "runtime.reward_well_formed")
    assert {one["check"].partition(":")[0] for one in others} == {"continuous", "low noise"}
    assert rest["note"] == "half of one"
    said = shell("audit", *begun, "--seed", "1", code=2).err
    assert "a file of its own" in said


def test_a_check_that_is_made_again_counts_as_it_is_now():
    old, new = Finding("a", 0.2, passed=False), Finding("a", 0.0, passed=True)
    assert joined(([old], ["the reward's form", "half of b"]), ([new], [])) == (
        [new],
        ["half of b"],
    )


def test_each_attack_has_a_name_in_openenv_s_panel():
    panel = {check for check, known in CHECK_IDS.items() if known == PANEL}
    assert panel >= {one.check for one in ATTACKS}
    placed = [Finding("a hedged answer in submit"), Finding("secrets in tool errors")]
    told = Page("", "", placed, CHECK_IDS).plain()["findings"]
    assert [one["openenv"] for one in told] == [PANEL, "runtime.oracle_containment"]


@pytest.mark.long
def test_an_extra_that_is_missing_is_one_line(shell: Shell, tmp_path: Path):
    file = tmp_path / "lacking.py"
    file.write_text(f"{IDLE_IS_PAID}\n    def __init__(self):\n        {MISSING}\n")
    said = shell("audit", f"{file}:Paid", code=2).err
    assert "zstandard is not installed: pip install 'turnwise[games]'" in said


MISSING = """from turnwise.errors import MissingExtraError
        raise MissingExtraError("zstandard", "games")"""
STILL = """
import os
import time
from asking import Asking
from turnwise import tool

class InTasks(Asking):
    def tasks(self, split):
        time.sleep(1000)

class InVerify(Asking):
    def verify(self, trajectory):
        if " or " in (trajectory.answer or ""):
            9**9**9**9  # holds the interpreter's lock
        return super().verify(trajectory)

class InTool(Asking):
    @tool
    def add(self, one: int, other: int) -> str:
        "Add two numbers."
        os._exit(0)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("InTasks", "tasks .*line 9. stands still, at: its tasks"),
        ("InVerify", "verify .*line 14. stands still, at: a hedged answer"),
        ("InTool", "its own exit or crash ended .* code 0, at: its tasks and first"),
    ],
)
def test_it_ends_with_a_page_where_the_environment_stands_still(
    shell: Shell, tmp_path: Path, kind: str, said: str
) -> None:
    file = tmp_path / "still.py"
    file.write_text(STILL)
    found = shell("audit", f"{file}:{kind}", "--seconds", "12", "--json", code=1).json
    stopped, *_, rest = found["findings"]
    assert found["verdict"] == "Not certified for RL: the environment's code."
    assert re.match(said.replace("line", f"{file}, line"), stopped["note"])
    assert rest["check"] == "not measured for want of time"
    assert rest["note"].endswith("one script for all tasks")

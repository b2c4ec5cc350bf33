"""The command `audit`: its page, and its verdict."""

from pathlib import Path

import pytest

from tests.commands.shell import Shell
from turnwise_trust.audit.probes import PROBES, audited
from turnwise_trust.audit.replay import replay
from turnwise_trust.audit.search import reward_search
from turnwise_trust.audit.subject import subject_of

IDLE_IS_PAID = """
from turnwise import Environment, Task, Verdict

class Paid(Environment):
    def tasks(self, split):
        return [Task(f"{split}{number}", f"Book flight {number}.") for number in range(8)]

    def verify(self, trajectory):
        return Verdict(1.0, True)
"""


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


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
    pages = [audited(subject_of("frozen_lake", {}, 8, n), probes).plain() for n in (0, 0, 1)]
    assert pages[0]["hash"] == pages[1]["hash"] != pages[2]["hash"]
    assert pages[0] != pages[1]  # seconds of verdicts
    assert pages[0]["verdict"].startswith("Certified")

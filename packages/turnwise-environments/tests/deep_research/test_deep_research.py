"""Inverted questions: one answer each, by counting; oracle and scores; more browsing finds more."""

import asyncio
from collections import defaultdict

import pytest

from benchmarks.browsing import conditions, success
from environment_playing import answered, calling, played, prototype, verdict_of
from turnwise_environments.choosing import all_tasks, spread
from turnwise_environments.deep_research.environment import DeepResearch
from turnwise_environments.deep_research.tasks import FEWEST

made = prototype("deep_research")


@pytest.mark.long
def test_one_class_meets_all_conditions_and_each_is_needed(made: DeepResearch) -> None:
    """Counted anew, from the documents' own facts."""
    facts: dict[str, set[tuple[str, str]]] = defaultdict(set)
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    modules: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for entry in made._documents:
        owner = entry.id.rpartition(".")[0]
        if entry.kind == "class":
            facts[entry.id] |= {("package", entry.id.partition(".")[0])}
            facts[entry.id] |= {(fact, to) for fact, to in entry.facts if fact == "base"}
        if entry.kind == "method":
            facts[owner].add(("method", entry.name))
        if entry.kind == "function":
            modules[owner].add(("function", entry.name))
        sizes[owner, entry.kind] += 1
    for identity, known in facts.items():
        owner = identity.rpartition(".")[0]
        known |= modules[owner] | {("classes", str(sizes[owner, "class"]))}
        known |= {("methods", str(sizes[identity, "method"]))}
    for task in spread(all_tasks(made), 150):
        wanted = conditions(task.prompt)
        assert len(wanted) == task.info["conditions"] >= 2
        meeting = [{one for one in facts if pair in facts[one]} for pair in wanted]
        assert set.intersection(*meeting) == {task.secret["open"]}, task.prompt
        for place, alone in enumerate(meeting):
            rest = [other for number, other in enumerate(meeting) if number != place]
            assert len(alone) >= FEWEST
            assert len(set.intersection(*rest)) > 1, task.prompt


@pytest.mark.long
def test_more_browsing_finds_more(made: DeepResearch) -> None:
    tasks = spread(all_tasks(made), 60)
    shares = [asyncio.run(success(made, tasks, budget)) for budget in (4, 16, 64)]
    assert shares == sorted(shares)
    assert shares[0] < 0.2
    assert shares[1] > shares[0] + 0.2
    assert shares[2] > 0.85


def test_pages_documents_and_notes(made: DeepResearch) -> None:
    task = made.tasks("train")[0]
    script = [
        calling("search", query="close"),
        calling("search", query="close", page=2),
        calling("search", query="close", page=21),
        calling("search", query="zzzzz"),
        calling("search", query=" "),
        calling("open_document", document="tarfile.TarFile"),
        calling("open_document", document="[tarfile]"),
        calling("open_document", document="TarFile"),
        calling("write_note", name="a", text="not TarFile"),
        calling("list_notes"),
        answered("TarFile"),
    ]
    play = played(made, task, *script)
    seen = [str(entry[0]) for entry in play.seen[1:]]
    assert len(seen[0].splitlines()) == len(seen[1].splitlines()) == 6
    assert seen[0].splitlines()[-1].startswith("(page 1 of ")
    assert not set(seen[0].splitlines()) & set(seen[1].splitlines())
    assert "page is 1 to 20" in seen[2]
    assert seen[3] == "No results."
    assert "the query is empty" in seen[4]
    assert " methods: add, addfile," in seen[5].splitlines()[1]
    assert "Module tarfile." in seen[6]
    assert "functions: " in seen[6]
    assert "there is no document 'TarFile'" in seen[7]
    assert seen[9] == "a: not TarFile"
    assert verdict_of(play).parts == {"exact_match": 0.0, "searches": 3.0, "opened": 2.0}

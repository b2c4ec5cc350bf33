"""The built-in tasks: one answer each, not guessable, and splits with no name in common."""

from collections import Counter, defaultdict

import pytest

from tests.environments.search.reading import Reader
from turnwise.environments.search.corpus import Document
from turnwise.environments.search.graph import RELATIONS, Graph, Relation
from turnwise.environments.search.tasks import MAX_TASKS_PER_ANSWER, question_id
from turnwise.rewards.answer import normalise

SPLITS = ("train", "heldout")


def symbols(task):
    found = [symbol for _, symbol in task.secret["chain"]]
    return {name.lower() for name in (*task.info["symbols"], *found)}


@pytest.fixture(scope="module")
def everything(library):
    return [task for split in SPLITS for task in library.tasks(split)]


def test_there_are_enough_tasks_of_every_kind(library):
    train, heldout = (Counter(task.info["hops"] for task in library.tasks(s)) for s in SPLITS)
    assert sum(train.values()) >= 2000
    assert sum(heldout.values()) >= 1000
    assert min(train["one"], train["two"], heldout["one"], heldout["two"]) >= 350
    assert min(train["three"], heldout["three"]) >= 100  # Python's releases differ
    assert min(train["intersection"], heldout["intersection"]) >= 80


def test_every_answer_is_the_only_one_by_a_second_reading(library, everything):
    reader = Reader(document.card for document in library.documents)
    wrong = [
        (task.prompt, task.secret["answers"], reader.answers(task.prompt))
        for task in everything
        if reader.answers(task.prompt) != {task.secret["answers"][0].lower()}
    ]
    assert wrong == []


def test_no_question_holds_its_answer(everything):
    for task in everything:
        answer, question = normalise(task.secret["answers"][0]), normalise(task.prompt)
        assert all(part not in question for part in (answer, *answer.split("."))), task
        assert all(normalise(name) not in answer for name in task.info["symbols"]), task


def test_what_an_environment_is_given_holds_no_answer(everything):
    for task in everything:
        public = task.public()
        shown = [public.prompt, *public.data.values(), *public.info["symbols"]]
        assert public.secret == {}
        assert task.secret["answers"][0].lower() not in " ".join(shown).lower()
        assert sorted(public.info) == ["hops", "symbols"]
        assert public.id == question_id(task.prompt)


@pytest.mark.parametrize("split", SPLITS)
def test_no_answer_is_popular(library, split):
    uses = Counter((task.info["hops"], task.secret["answers"][0]) for task in library.tasks(split))
    assert max(uses.values()) <= MAX_TASKS_PER_ANSWER


def test_no_earlier_result_that_is_needed_states_the_answer(library, everything):
    stated = defaultdict(set)
    for document in library.documents:
        for _, target in document.facts:
            stated[document.name.lower(), target].update(target for _, target in document.facts)
    for task in everything:
        if task.info["hops"] in ("two", "three"):
            for query, found in task.secret["chain"][:-1]:
                assert task.secret["answers"][0] not in stated[query.lower(), found], task


def test_splits_share_no_name_ids_are_unique_and_questions_short(library, everything):
    train, heldout = (
        {name for task in library.tasks(split) for name in symbols(task)} for split in SPLITS
    )
    assert train.isdisjoint(heldout)
    assert len({task.id for task in everything}) == len(everything)
    assert max(len(task.prompt.split()) for task in everything) <= 25


def test_the_order_is_fixed_and_mixed(library):
    heldout = library.tasks("heldout")
    assert [task.id for task in heldout] != sorted(task.id for task in heldout)
    assert len({task.info["hops"] for task in heldout[:100]}) == 4


def test_a_relation_is_asked_of_all_documents_with_a_name():
    documents = [
        Document("a.C", "C", "class", "", "", (("module", "a"), ("base", "object"))),
        Document("b.C", "C", "class", "", "", (("module", "b"), ("base", "object"))),
        Document("b.c", "c", "function", "", "", (("module", "b"),)),
    ]
    graph = Graph(documents)
    module_of_class = Relation("module", "class", "module")
    assert [edge.name for edge in graph.neighbours(module_of_class, "C")] == ["a", "b"]
    assert graph.follow(module_of_class, "C") is None
    assert graph.follow(Relation("base", "class", "class"), "C").evidence == {0, 1}
    assert graph.follow(Relation("module", "function", "module"), "c").name == "b"
    assert graph.follow(Relation("module", "class", "module", inverse=True), "b").name == "C"
    assert len(set(RELATIONS)) == len(RELATIONS)

"""WebShaper: formulas and their executor, the validator, the Expander, and items that are sound."""

import asyncio
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.rollout.playing import encode, rolling
from turnwise.api import load_recipe
from turnwise.config import RolloutConfig
from turnwise.environments.search.environment import SearchEnvironment
from turnwise.environments.search.library import QuestionFile
from turnwise.errors import ConfigError, DataError
from turnwise.types import Action, Task, Trajectory, Turn
from turnwise_synthesis.heldout import HeldOut
from turnwise_synthesis.items import Item, Material, Refused
from turnwise_synthesis.settings import SynthesisConfig
from turnwise_synthesis.webshaper.agent import AgentDescriber, ExpanderEnvironment, task_of
from turnwise_synthesis.webshaper.environment import ShapedQuestions, ShapedSearch
from turnwise_synthesis.webshaper.knowledge import Knowledge, read_knowledge
from turnwise_synthesis.webshaper.method import WebShaper, names_of
from turnwise_synthesis.webshaper.projections import members, parsed, read_formulas, text_of
from turnwise_synthesis.webshaper.validator import validate
from turnwise_synthesis.webshaper.way import node_of
from turnwise_synthesis.webshaper.wording import question_of


def novel(title: str, author: str, year: str, **more: str) -> dict[str, Any]:
    text = f"A novel by {author} of {year}. {' '.join(more.values())}"
    facts = {"author": author, "year": year, **more}
    kinds = {"author": "person", "scene": "town"}
    return {"title": title, "kind": "novel", "text": text, "facts": facts, "kinds": kinds}


def person(title: str, town: str) -> dict[str, Any]:
    text = f"A writer who was born in {town}."
    return {"title": title, "kind": "person", "text": text, "facts": {"town": town}}


WORLD = [
    novel("Emma", "Austen", "1815"),
    novel("Persuasion", "Austen", "1817"),
    novel("Sanditon", "Austen", "1817"),
    novel("Ivanhoe", "Scott", "1819", scene="Edinburgh"),
    novel("Waverley", "Scott", "1814"),
    novel("Mannering", "Scott", "1815"),
    novel("Redgauntlet", "Scott", "1824"),
    novel("Letters of Hogg", "Hogg", "1824"),
    person("Austen", "Steventon"),
    person("Scott", "Edinburgh"),
    person("Hogg", "Ettrick"),
]


def written(file: Path, records: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


@pytest.fixture
def world(tmp_path: Path) -> Knowledge:
    return read_knowledge(written(tmp_path / "world.jsonl", WORLD))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('novel.author("Emma")', "Austen"),
        ('^novel.year("1815")', "Emma Mannering"),
        ('^novel.year("1815" | "1814")', "Emma Mannering Waverley"),
        ('^novel.year("1815") | ^novel.year("1814")', "Emma Mannering Waverley"),
        ('^novel.year("1815") & ^novel.author("Scott")', "Mannering"),
        ('person.town(novel.author("Emma" | "Ivanhoe"))', "Edinburgh Steventon"),
        ('^novel.author(^person.town("Edinburgh")) & (^novel.year("1814" | "1817"))', "Waverley"),
    ],
)
def test_a_formula_stands_for_names_and_its_text_is_read_back(
    text: str, names: str, world: Knowledge
) -> None:
    formula = parsed(text, world.relations)
    assert sorted(members(formula, world.graph)) == names.split()
    assert members(parsed(text_of(formula), world.relations), world.graph) == {*names.split()}


def test_a_question_says_each_part_and_its_way_finds_what_it_is_for(world: Knowledge) -> None:
    text = '^novel.author(^person.town("Edinburgh")) & ^novel.year("1814" | "1817")'
    node = node_of(parsed(text, world.relations), world)
    assert question_of(node.formula) == (
        "Which novel both has the author the person that has the town the town Edinburgh and has "
        "the year either the year 1814 or the year 1817?"
    )
    assert [(one.query, one.found) for one in node.way] == [
        ("Edinburgh", "Scott"),
        ("1814 Scott", "Waverley"),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('^novel.year("1815")', "not unique"),
        ('novel.author("Letters of Hogg")', "guessable"),  # the question says it
        ('novel.author("Waverley")', "guessable"),  # most novels are by Scott
        ('person.town(novel.author("Ivanhoe"))', "shortcut"),  # the novel's document names the town
        ('novel.author("Emma") & novel.author("Sanditon")', "redundant"),
        ('^novel.year("1814") & ^novel.author("Scott")', "redundant"),
        ('^novel.author("Austen") & ^novel.year("1815" | "1814")', ""),  # Austen has none of 1814
        ('person.town(novel.author("Emma"))', ""),
    ],
)
def test_the_validator_says_what_is_wrong(text: str, reason: str, world: Knowledge) -> None:
    def valid() -> str:
        try:
            validate(node_of(parsed(text, world.relations), world), world)
        except Refused as refused:
            return str(refused)
        return ""

    assert valid() == reason


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        ([person("Scott", "Ayr"), person("scott", "Ayr")], "'scott' and 'Scott' .* are two names"),
        ([person("A", "B") | {"facts": {"town": "C"}}], "the text does not say 'C'"),
        (
            [
                {"title": "Ash", "kind": "part", "text": "of Elm", "facts": {"part": "Elm"}},
                {"title": "Elm", "kind": "part", "text": "of Ash", "facts": {"part": "Ash"}},
            ],
            "part.part leads in a circle, Ash -> Elm -> Ash: remove a fact",
        ),
        ([{"title": "A"}], "a record has the texts title, kind and text"),
    ],
)
def test_knowledge_that_contradicts_itself_is_refused_in_a_line(
    records: list[dict[str, Any]], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=problem):
        read_knowledge(written(tmp_path / "world.jsonl", records))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('^novel.year("1700")', r'line 2: \^novel.year\("1700"\) has no members'),
        ('novel.writer("Emma")', "line 2: unknown relation 'novel.writer'"),
        ('novel.author("Emma"', "line 2: a bracket is not closed"),
        ("novel.author(Emma)", "is no part of a formula"),
        ('"Emma"', "is no formula"),
        (r'novel.author("Em\ma")', "line 2: .* is no name in quotes"),
        ("(" * 2000, "line 2: more than 50 brackets"),
        ('"Emma" | "Emma"', 'line 2: put "Emma" into'),
        ('"Austen" & novel.author("Emma")', 'line 2: put "Austen" into'),
        ('person.town("Austen" & novel.author("Emma"))', 'line 2: put "Austen" into'),
        ('person.town("Austen" | ("Scott" | "Hogg"))', 'line 2: put "Scott" into'),
    ],
)
def test_a_file_of_formulas_says_which_line_is_wrong(
    line: str, problem: str, world: Knowledge, tmp_path: Path
) -> None:
    (tmp_path / "formulas.txt").write_text(f"# novels\n{line}\n")
    with pytest.raises(DataError, match=problem):
        read_formulas(tmp_path / "formulas.txt", world.graph, world.relations)


def method(**options: Any) -> WebShaper:
    table = {"method": "webshaper", "options": options}
    recipe = load_recipe("search", {"synthesis": table})
    settings = recipe.find(SynthesisConfig)
    assert settings is not None
    return WebShaper(Material(recipe, settings), **options)


def proposed(shaper: WebShaper, attempts: int) -> list[Item]:
    found = []
    for attempt in range(attempts):
        try:
            found.append(shaper.propose(attempt))
        except Refused:
            continue
    return found


async def played(prototype: SearchEnvironment, task: Task) -> Trajectory:
    environment, actions = prototype.fresh(), prototype.oracle(task)
    turns = [Turn(action, await environment.step(action)) for action in actions]
    trajectory = Trajectory(task, group="g", episode=0, seed=0, turns=tuple(turns))
    return await environment.verify(trajectory)


def solved(environment: SearchEnvironment) -> list[bool]:
    tasks = [*environment.tasks("train"), *environment.tasks("heldout")]
    return [asyncio.run(played(environment, task)).success for task in tasks]


@pytest.mark.long
def test_formulas_about_ones_own_documents_become_tasks_that_the_oracle_solves(
    tmp_path: Path,
) -> None:
    file = written(tmp_path / "world.jsonl", WORLD)
    shaper = method(knowledge=str(file), layers=2)
    items = {one.key: dict(one.data) for one in proposed(shaper, 60)}
    assert len(items) > 2
    questions = written(tmp_path / "items.jsonl", list(items.values()))
    outcomes = solved(SearchEnvironment(QuestionFile(str(questions), documents=str(file))))
    assert outcomes == [True] * len(items)


@pytest.mark.long
def test_a_file_of_formulas_is_expanded_in_its_order(tmp_path: Path) -> None:
    file = written(tmp_path / "world.jsonl", WORLD)
    lines = ['person.town(novel.author("Emma"))', 'person.town(novel.author("Persuasion"))']
    (tmp_path / "formulas.txt").write_text("\n".join(lines))
    shaper = method(knowledge=str(file), formulas=str(tmp_path / "formulas.txt"), layers=1)
    assert [one.data["formula"] for one in proposed(shaper, 2)] == lines


@pytest.mark.long
def test_questions_about_the_library_are_sound_and_none_is_held_out(tmp_path: Path) -> None:
    shaper = method()
    items = {one.key: dict(one.data) for one in proposed(shaper, 300)}
    forms = {one["info"]["form"] for one in items.values()}
    assert forms == {"chain", "expanded"}
    assert any(" | " in one["formula"] for one in items.values())
    questions = written(tmp_path / "items.jsonl", list(items.values()))
    assert all(solved(SearchEnvironment(QuestionFile(str(questions)))))
    library = SearchEnvironment()
    heldout = HeldOut(library.tasks("heldout"))
    assert not any(map(heldout.holds, items.values()))
    planted: Mapping[str, Any] = {"question": library.tasks("heldout")[7].prompt.upper()}
    assert heldout.holds(planted)


@pytest.mark.long
def test_shaped_questions_of_both_kinds_are_held_out_and_share_no_name() -> None:
    with pytest.MonkeyPatch.context() as patch:
        # Made anew, unlike the library that they are about.
        patch.setattr("turnwise_synthesis.webshaper.environment.cached", lambda *given: given[2]())
        environment = ShapedSearch(ShapedQuestions(count=20, heldout=5, kind="chain"))
        patch.setattr("turnwise_synthesis.webshaper.environment.PATIENCE", 1)
        with pytest.raises(ConfigError, match=r"asks for 21 train questions .* ask for fewer"):
            ShapedQuestions(count=21, heldout=5, kind="chain").load()
    train, heldout = environment.tasks("train"), environment.tasks("heldout")
    assert [task.info["form"] for task in train] == ["chain"] * 20
    assert [task.info["form"] for task in heldout] == ["chain"] * 5 + ["expanded"] * 5
    assert names_of(train).isdisjoint(names_of(heldout))
    assert all(solved(environment))
    task = heldout[0]
    short = Turn(Action("", answer=task.secret["answers"][0]))
    guessed = Trajectory(task, group="g", episode=0, seed=0, turns=(short,))
    verdict = asyncio.run(environment.verify(guessed))
    assert (verdict.success, verdict.parts["fewer"]) == (True, 1.0)


@pytest.mark.long
def test_a_policy_expands_as_an_agent() -> None:
    environment = ExpanderEnvironment()
    said = iter(
        [
            "<search> TarInfo</search>",
            '<summarise> method.class("fromtarfile")</summarise>',
            '<answer> method.class("fromtarfile")</answer>',
            '<answer> method.class("fromtarfile" | "next")</answer>',
        ]
    )
    runner = rolling(environment, lambda session, prompt: encode(next(said)), RolloutConfig())
    describer = AgentDescriber(runner, environment.knowledge)
    found = describer.describe("TarInfo", "class", random.Random(0))
    assert found is not None
    assert text_of(found) == 'method.class("fromtarfile")'
    assert describer.describe("TarInfo", "class", random.Random(0)) is None  # not unique
    task = task_of("TarInfo", "class")
    assert asyncio.run(played(environment, task)).success

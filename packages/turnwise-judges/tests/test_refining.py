"""A judge that is trained beside the policy which it is: its replies are trajectories like any
other, learned from in the same update, and seen by nothing that is about the tasks."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from judging_library import asker, episode
from tests.fakes import save_chat_model
from tests.small_runs import interrupted, resume, train, write_recipe
from turnwise.algorithms.registry import algorithm_names, make_algorithm
from turnwise.config import load_recipe
from turnwise.errors import ConfigError, RunStoppedError
from turnwise.learning.credits import estimate
from turnwise.learning.signals.base import SignalArrays, Signals
from turnwise.parts.algorithm_checks import check_algorithm_for_recipe
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import groups_of, read_rows, rows_of_tasks
from turnwise.tokens import NO_VERSION, Source
from turnwise.types import Group
from turnwise_judges.models import example_reply
from turnwise_judges.pairwise import Better, PairwiseJudge
from turnwise_judges.pointwise import PointwiseJudge
from turnwise_judges.refining import KnownQuestion, grade, known_questions

SCRIPTED_JUDGE = Path(__file__).with_name("scripted_judge.py")
TABLES = f"""
engine = {{ name = "{SCRIPTED_JUDGE}:ScriptedJudge", max_sequences = 4 }}
rollout = {{ max_turns = 1, max_turn_tokens = 60, max_tokens = 900 }}
judge.form = "pairwise"
judge.opponents = 1
judge.max_characters = 400
judge.model = {{ kind = "policy", max_tokens = 60 }}
judge.refinement = {{ requests = 2, replies = 4 }}
reward.parts.judge = 0.1
learning.learning_rate = 1e-3
train = {{ steps = 2, tasks_per_step = 6, group_size = 2, checkpoint_every = 1 }}
evaluation.tasks = 1
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipe")
    return write_recipe(folder, "Levels", TABLES, save_chat_model(folder / "chat"))


@pytest.fixture(scope="module")
def whole(recipe: Path) -> RunFolder:
    folder = RunFolder.new(recipe.parent / "run")
    train(recipe, folder)
    return folder


def rows_of(folder: RunFolder, step: int) -> tuple[list, list]:
    """A step's episodes, and its replies."""
    rows = read_rows(folder.path / f"trajectories/step-{step:06d}.parquet")
    tasks = rows_of_tasks(rows)
    assert rows[: len(tasks)] == tasks
    return tasks, rows[len(tasks) :]


def same_weights(step: str, *runs: RunFolder) -> bool:
    files = [run.checkpoints / step / "model.safetensors" for run in runs]
    return files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.long
def test_replies_are_trajectories_of_the_step(whole: RunFolder) -> None:
    for step in (1, 2):
        _, replies = rows_of(whole, step)
        assert {row["group"] for row in replies} == {f"refinement/{step - 1}/{n}" for n in range(2)}
        assert [row["episode"] for row in replies] == [0, 1, 2, 3] * 2
        for row in replies:
            source = np.array(row["source"])
            sampled = source == Source.MODEL
            assert {Source.USER, Source.TEMPLATE, Source.MODEL} == set(source)
            assert not np.flatnonzero(~sampled)[-1] > np.flatnonzero(sampled)[0]
            assert set(np.array(row["version"])[sampled]) == {step - 1}
            assert np.isfinite(np.array(row["logprob"])[sampled]).all()
            assert row["reward"] == float(row["success"])
            assert row["prompt"].startswith("BEGIN DATA")
            said, truth = row["detail"].split("; the truth: ")
            assert row["success"] is (said == truth)
    seen = {row["outcome"] for step in (1, 2) for row in rows_of(whole, step)[1]}
    assert seen == {"success", "failure", "agent_parse_error"}


@pytest.mark.long
def test_they_are_in_the_update_and_in_numbers_of_their_own(whole: RunFolder) -> None:
    for line in whole.lines("metrics.jsonl"):
        tasks, replies = rows_of(whole, line["step"])
        assert line["judge/refinement_accuracy"] == np.mean([row["success"] for row in replies])
        parts = [json.loads(row["parts"]) for row in replies]
        assert line["judge/refinement_malformed"] == np.mean([p["malformed"] for p in parts])
        places = [p["place"] for p in parts if "place" in p]
        assert line["judge/refinement_position_bias"] == pytest.approx(np.mean(places))
        assert line["judge/refinement_requests"] == 2
        assert line["judge/refinement_replies"] == 8
        assert line["judge/refinement_tokens"] == sum(len(row["ids"]) for row in replies)
        assert line["judge/refinement_ungraded"] == 0
        assert line["rollout/episodes"] == len(tasks) == 12
        assert line["rollout/success"] == np.mean([row["success"] for row in tasks])
        assert line["reward/mean"] == pytest.approx(np.mean([row["reward"] for row in tasks]))
        trained = [row for row in (*tasks, *replies) if np.any(row["advantage"])]
        counts = [np.sum(np.array(row["source"]) == Source.MODEL) for row in trained]
        assert line["policy/trained_tokens"] == sum(counts)
    everything = [row for step in (1, 2) for row in rows_of(whole, step)[1]]
    assert any(np.any(row["advantage"]) for row in everything)


@pytest.mark.long
def test_a_run_that_was_stopped_goes_on_exactly(whole: RunFolder, tmp_path: Path) -> None:
    folder = interrupted(whole, tmp_path / "run", "step-000002")
    resume(folder)
    assert folder.lines("metrics.jsonl") == whole.lines("metrics.jsonl")
    assert repr(rows_of(folder, 2)) == repr(rows_of(whole, 2)), "there are NaN in them"
    assert same_weights("step-000002", whole, folder)


@pytest.mark.long
def test_advantages_of_the_tasks_are_those_of_a_run_without(
    recipe: Path, whole: RunFolder, tmp_path: Path
) -> None:
    alone = RunFolder.new(tmp_path / "run")
    train(recipe, alone, "judge.refinement=false", "train.steps=1")
    tasks, replies = rows_of(alone, 1)
    assert not replies
    for row, own in zip(rows_of(whole, 1)[0], tasks, strict=True):
        assert row["ids"] == own["ids"]
        assert row["advantage"] == own["advantage"]
    assert not any("refinement" in name for name in alone.lines("metrics.jsonl")[0])
    assert not same_weights("step-000001", whole, alone)


@pytest.mark.long
def test_they_are_sampled_ahead_too(recipe: Path, tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    ahead = ("engine.deterministic=false", "train.max_staleness=1")
    train(recipe, folder, *ahead, "algorithm.correction=truncated")
    for line in folder.lines("metrics.jsonl"):
        assert line["staleness/max"] <= 1
        _, replies = rows_of(folder, line["step"])
        assert len(replies) == line["judge/refinement_replies"] == 8
        versions = {version for row in replies for version in row["version"]} - {NO_VERSION}
        assert versions <= {max(0, line["step"] - 2), line["step"] - 1}


@pytest.mark.long
def test_they_are_drawn_among_what_truncation_leaves(recipe: Path, tmp_path: Path) -> None:
    folder = RunFolder.new(tmp_path / "run")
    train(recipe, folder, "rollout.top_k=4", "train.steps=1")
    (line,) = folder.lines("metrics.jsonl")
    assert line["policy/logprob_gap"] < 1e-4
    tasks, replies = rows_of(folder, 1)
    for member in (one for group in groups_of([*tasks, *replies]) for one in group.trajectories):
        assert np.array_equal(member.tokens.kept.counts > 0, member.tokens.mask)


@pytest.mark.long
@pytest.mark.wing("studies")
def test_no_pairs_are_exported_of_replies(whole: RunFolder, tmp_path: Path) -> None:
    from turnwise_studies.formats.export import export_preferences

    export_preferences(whole, tmp_path / "pairs.jsonl")
    assert "BEGIN DATA" not in (tmp_path / "pairs.jsonl").read_text()


@pytest.mark.long
def test_a_request_without_room_stops_the_run(recipe: Path, tmp_path: Path) -> None:
    short = ("rollout.max_tokens=600", "judge.max_characters=2000")
    with pytest.raises(RunStoppedError, match=r"lower judge\.max_characters"):
        train(recipe, RunFolder.new(tmp_path / "run"), *short)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["judge.form=rubric"], "none of a rubric's criteria"),
        (["judge.model=scripted"], "judge.model.kind is 'scripted'"),
        (["train.steps=0"], r"needs steps of RL, and train\.steps = 0"),
        pytest.param(
            ["algorithm.name=remax"],
            "remax needs greedy episodes beside groups",
            marks=pytest.mark.wing("algorithms"),
        ),
        (["algorithm.name=pass_at_k", "train.group_size=5", "algorithm.k=5"], "give at least 5"),
        (["rollout.max_tokens=300"], "without any record a request of"),
        (["judge.refinement.replies=1"], "judge.refinement.replies"),
    ],
)
def test_what_cannot_work_is_refused(
    recipe: Path, tmp_path: Path, changes: Sequence[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        train(recipe, RunFolder.new(tmp_path / "run"), *changes)


@pytest.mark.long
def test_an_algorithm_that_is_not_refused_estimates_replies(recipe: Path, whole: RunFolder) -> None:
    groups = groups_of(rows_of(whole, 1)[1])
    accepted = set()
    for name in algorithm_names():
        algorithm = make_algorithm(name, {})
        try:
            loaded = load_recipe(str(recipe), [f"algorithm.name={name}"])
            check_algorithm_for_recipe(loaded, algorithm)
        except ConfigError:
            continue
        credits = estimate(groups, _measured(groups), algorithm)
        assert len(credits.advantages) == 8
        assert all(np.isfinite(own).all() for own in credits.advantages.values())
        several_right = name == "pass_at_k"  # is content with two successes of four
        assert several_right or any(map(np.any, credits.advantages.values())), name
        accepted.add(name)
    assert {"grpo", "rloo", "dapo", "ppo", "turn_rloo"} <= accepted
    assert not {"mt_grpo", "remax", "gdpo", "distillation", "tree_grpo", "igpo"} & accepted


def _measured(groups: Sequence[Group]) -> Signals:
    """What critics and score norms would say."""
    return Signals(
        {
            one.id: SignalArrays(
                penalty=0.0,
                values=np.full(len(one.tokens), 0.5, np.float32),
                score_norms=np.ones(len(one.tokens), np.float32),
            )
            for group in groups
            for one in group.graded
        }
    )


PAIRWISE = PairwiseJudge(asker(example_reply))
POINTWISE = PointwiseJudge(asker(example_reply), low=0, high=10)


def of(name: str, *rewards: float | None) -> Group:
    """A group of episodes that succeeded where their reward is 1."""
    members = [
        replace(episode(f"{name} {n}", number=n, reward=reward), group=name)
        for n, reward in enumerate(rewards)
    ]
    return Group(name, tuple(members))


def asked(question: KnownQuestion, seed: int = 0) -> str:
    return question.request.messages(seed)[-1]["content"]


def reply(question: KnownQuestion, seed: int = 0, **values: object) -> str:
    return json.dumps(json.loads(asked(question, seed).splitlines()[-1]) | values)


def answers(question: KnownQuestion) -> list[str]:
    data = question.request.data
    return [data["first"]["answer"], data["second"]["answer"]]


def test_one_of_a_pair_succeeded_and_each_place_is_right_in_half() -> None:
    groups = [of("a", 1, 0, 0), of("b", 1, 1, 1), of("c", 1, None, 0), of("d", None, 1)]
    questions = known_questions(PAIRWISE, groups, 9, seed=3)
    assert sorted(sorted(answers(q)) for q in questions) == [
        ["a 0", "a 1"],
        ["a 0", "a 2"],
        ["c 0", "c 2"],
    ]
    for question in questions:
        right = "first" if answers(question)[0].endswith("0") else "second"
        assert question.truth == right
        for word in Better:
            graded = grade(question, reply(question, better=str(word)), seed=0)
            assert graded.right is (word == right)
            assert not graded.malformed
    many = known_questions(PAIRWISE, [of("a", 1, 1, 0, 0), of("b", 1, 1, 0, 0)], 6, seed=3)
    assert [q.truth for q in many].count("first") == 3


def test_every_group_is_asked_about_before_one_is_asked_about_again() -> None:
    groups = [of(name, 1, 0, 0) for name in "abc"]
    for seed in range(5):
        questions = known_questions(PAIRWISE, groups, 3, seed)
        assert {answers(q)[0][0] for q in questions} == set("abc")


def test_the_seed_decides() -> None:
    groups = [of(name, 1, 0, 1, 0) for name in "abc"]
    for judge in (PAIRWISE, POINTWISE):
        drawn = [[asked(q) for q in known_questions(judge, groups, 4, seed)] for seed in (1, 1, 2)]
        assert drawn[0] == drawn[1] != drawn[2]


def test_a_score_is_right_on_the_side_of_success() -> None:
    groups = [of("a", 1, 1, 1, 0), of("b", 1, 0, None)]
    questions = known_questions(POINTWISE, groups, 9, seed=0)
    assert [q.truth for q in questions].count("above 5") == 2
    assert len(questions) == 4, "as many successes as failures"
    for question in questions:
        above = question.truth == "above 5"
        for score, high in ((0, False), (5, False), (5.5, True), (10, True)):
            assert grade(question, reply(question, score=score), seed=0).right is (above is high)
    alone = {known_questions(POINTWISE, groups, 1, seed)[0].truth for seed in range(9)}
    assert alone == {"above 5", "not above 5"}


def test_nothing_is_asked_where_nothing_differs() -> None:
    for judge in (PAIRWISE, POINTWISE):
        assert known_questions(judge, [of("a", 1, 1), of("b", None, 1)], 4, seed=0) == []
        assert known_questions(judge, [of("a", 0, 0)], 4, seed=0) == []
    assert known_questions(PAIRWISE, [of("a", 1), of("b", 0)], 4, seed=0) == [], "of other tasks"


def test_a_malformed_reply_is_wrong_and_another_mark_is_malformed() -> None:
    (question, *_) = known_questions(PAIRWISE, [of("a", 1, 0)], 1, seed=0)
    right = reply(question, better=question.truth)
    assert grade(question, right, seed=0).right
    for text in ("", "first", right + "\n{}", reply(question, better="both"), right[:-1]):
        graded = grade(question, text, seed=0)
        assert graded.malformed
        assert not graded.right
        assert graded.place is None
    assert grade(question, right, seed=1).malformed
    places = [grade(question, reply(question, better=str(word)), 0).place for word in Better]
    assert places == [1.0, -1.0, 0.0]

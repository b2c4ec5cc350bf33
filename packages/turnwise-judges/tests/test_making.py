"""From a file to a judge, and what is refused in one line."""

from pathlib import Path

import pytest

from judging_library import episode, group
from tests.fakes import byte_tokenizer
from turnwise.engines.scripted import ScriptedEngine
from turnwise.errors import ConfigError
from turnwise.rewards.parts import Scope
from turnwise_judges.making import make_judge, part_of, unasked_part
from turnwise_judges.models import EngineModel, Policy
from turnwise_judges.pointwise import PointwiseJudge
from turnwise_judges.rubric import SELF_CRITIQUE, RubricJudge
from turnwise_judges.settings import AnyJudgeConfig, load_judge

SCRIPTED = '[judge.model]\nkind = "scripted"\n'


def load(folder: Path, text: str, *overrides: str) -> AnyJudgeConfig:
    file = folder / "judge.toml"
    file.write_text(text)
    return load_judge(file, overrides)


async def test_a_pointwise_judge_and_a_cache_of_ones_own(tmp_path: Path) -> None:
    text = f'[judge]\nquestion = "Why?"\nhigh = 4\n{SCRIPTED}'
    config = load(tmp_path, text, "judge.max_calls=1")
    judge = make_judge(config, tmp_path / "run", seed=0)
    assert isinstance(judge, PointwiseJudge)
    assert (judge.low, judge.high, judge.question) == (0, 4, "Why?")
    scores = await judge.measure(group("a", "b"))
    assert scores == [2.0, None], "the budget is one call"
    assert (tmp_path / "run/judge.jsonl").is_file()
    elsewhere = load(tmp_path, SCRIPTED, f"judge.cache={tmp_path}/kept")
    await make_judge(elsewhere, tmp_path / "none", seed=0).measure_one(episode())
    assert (tmp_path / "kept/judge.jsonl").is_file()
    assert not (tmp_path / "none").exists()


def test_a_rubric_and_criteria_of_ones_own(tmp_path: Path) -> None:
    text = (
        '[judge]\nform = "rubric"\nrubric = "self_critique"\n'
        'criteria = { sourced = "Each number has a source.", clear = "It is." }\n'
        f"weights = {{ sourced = 3 }}\n{SCRIPTED}"
    )
    judge = make_judge(load(tmp_path, text), tmp_path, seed=0)
    assert isinstance(judge, RubricJudge)
    assert len(judge.criteria) == len(SELF_CRITIQUE) + 1
    found = {one.name: (one.sentence, one.weight) for one in judge.criteria}
    assert found["sourced"] == ("Each number has a source.", 3)
    assert found["clear"] == ("It is.", 1)


def test_the_policy(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    policy = Policy(ScriptedEngine(lambda *_: []), tokenizer, lambda: "3")
    tokenizer.chat_template = "{{ messages[0].content }}"
    config = load(tmp_path, "", "judge.model.temperature=0.5")
    judge = make_judge(config, tmp_path, 0, policy)
    assert isinstance(judge.asker.model, EngineModel)
    assert judge.asker.model.identity == "engine 3 0.5 512"


async def test_comparisons_and_what_the_policy_is_asked_are_of_groups(tmp_path: Path) -> None:
    """An engine in lockstep waits for every open episode: the policy cannot judge one of them."""
    scored = load(tmp_path, f"[judge]\nlow = 1\nhigh = 4\n{SCRIPTED}")
    part = part_of(scored, make_judge(scored, None, seed=0))
    assert (part.low, part.high, part.scope) == (1, 4, Scope.TRAJECTORY)
    assert await part.function(episode()) == 2.5
    compared = load(tmp_path, f'[judge]\nform = "pairwise"\n{SCRIPTED}')
    part = part_of(compared, make_judge(compared, None, seed=0))
    assert (part.low, part.high, part.scope) == (0, 1, Scope.GROUP)
    assert await part.function(group("a", "b")) == [0.5, 0.5]
    ours = load(tmp_path, "")
    assert part_of(ours, make_judge(ours, None, seed=0)).scope == Scope.GROUP


async def test_before_there_is_a_policy_it_is_known_what_part_the_judge_is(tmp_path: Path) -> None:
    """Nothing is asked, so no file with answers is read."""
    config = load(tmp_path, SCRIPTED, f"judge.cache={tmp_path}/kept")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/judge.jsonl").write_bytes(b"\xff")
    assert unasked_part(config, 0).scope == Scope.TRAJECTORY
    ours = load(tmp_path, "", "judge.refinement.requests=2")
    part = unasked_part(ours, 0)
    assert part.scope == Scope.GROUP
    assert await part.function(group("a")) == [None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[judge]\nlow = 3\nhigh = 3", "give a low below the high"),
        ("[judge]\nhigh = inf", "give a low below the high, both finite"),
        ("[judge]\nhihg = 3", "unknown key 'judge.hihg': did you mean 'judge.high'"),
        ('[judge]\nform = "triple"', "judge.form is 'triple': give one of"),
        ('[judge]\nform = "pairwise"\nlow = 3', "judge.low goes with judge.form = 'pointwise'"),
        ("[judge]\nseconds = 0", "judge.seconds is 0: give a value above 0"),
        ('[judge]\ncache = "kept"', "leave cache out"),
        ("[judg]\nlow = 0", "unknown key 'judg.low'"),
        ("[judge\n", "is not valid TOML"),
        ('[judge]\nform = "rubric"\nrubric = "self_critic"', "did you mean 'self_critique'"),
        ('[judge]\nform = "rubric"', "a judge's rubric needs criteria"),
        ('[judge]\nform = "rubric"\nweights = { a = 1 }\ncriteria = { b = "B." }', "criterion 'a'"),
        ('[judge.model]\nkind = "endpoint"\nname = "m"', "judge.model.url is missing"),
        ('[judge.model]\nkind = "endpoint"\nname = "m"\nurl = "h"', "write http://host:port/v1"),
        ('[judge.model]\nkind = "scripted"\nscript = "no.py:f"', "there is no such file"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, message: str) -> None:
    if "rubric" in text:
        text = f"{text}\n{SCRIPTED}"
    with pytest.raises(ConfigError, match=message):
        make_judge(load(tmp_path, text), tmp_path, seed=0)
    with pytest.raises(ConfigError, match="there is no such file"):
        load_judge(tmp_path / "none.toml")

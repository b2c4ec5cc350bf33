"""Promise 9: unknown keys and contradictions are errors that say what to do."""

from itertools import permutations
from pathlib import Path

import pytest

from tests.marked import marked
from turnwise.config import (
    ModelConfig,
    Recipe,
    RecordedDemonstrations,
    ScaffoldConfig,
    ScriptedDemonstrations,
    check_recipe,
    dump_recipe,
    load_recipe,
    recipe_keys,
    sections,
    shipped_recipes,
)
from turnwise.errors import ConfigError

MINIMAL = 'name = "x"\n[environment]\nname = "search"\n'


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(MINIMAL)
    return path


def test_overrides_are_toml_or_bare_strings(recipe: Path) -> None:
    loaded = load_recipe(
        str(recipe),
        ["train.steps=3", "model.name=some/folder", "learning.betas=[0.8, 0.9]", "name=y"],
    )
    assert loaded.train.steps == 3
    assert loaded.model.name == "some/folder"
    assert loaded.learning.betas == (0.8, 0.9)
    assert loaded.name == "y"


@pytest.mark.parametrize(
    ("overrides", "rate"),
    [
        ([], 1e-6),
        (["model.lora_rank=8"], 1e-4),
        (["learning.betas=[0.8, 0.9]"], 1e-6),
        (["model.lora_rank=8", "learning.learning_rate=1e-6"], 1e-6),
        (["learning.learning_rate=1e-4"], 1e-4),
    ],
)
def test_the_rate_that_none_is_named_for_is_by_what_is_trained(
    recipe: Path, overrides: list[str], rate: float
) -> None:
    loaded = load_recipe(str(recipe), overrides)
    assert loaded.learning.learning_rate == rate
    recipe.write_text(dump_recipe(loaded))
    assert load_recipe(str(recipe), ["model.lora_rank=0"]).learning.learning_rate == rate


def test_tables_that_belong_to_others_take_any_key(recipe: Path) -> None:
    loaded = load_recipe(
        str(recipe),
        [
            "environment.options.top_k=5",
            "sft.demonstrations.behaviours.hasty=1",
            "sandbox.limits.seconds=5.0",
        ],
    )
    assert loaded.environment.options == {"top_k": 5}
    assert loaded.sandbox == {"limits": {"seconds": 5.0}}
    assert loaded.sft.demonstrations == ScriptedDemonstrations(behaviours={"hasty": 1.0})


@pytest.mark.parametrize(
    ("override", "message"),
    marked(
        [
            ("train.stesp=3", "did you mean 'train.steps'"),
            ("trian.steps=3", "did you mean 'train.steps'"),
            ("steps", "write key=value"),
            ("name.x=1", "is a value, not a table"),
            ("train.steps=-1", "train.steps"),
            ("train.steps=many", "train.steps is 'many': give a whole number"),
            ("engine=3", "engine is 3: give a table"),
            ("engine.name=3", "engine.name is 3: give a text"),
            (
                "curriculum=by_sucess",
                "curriculum.kind is 'by_sucess': give one of 'all' or 'by_succ",
            ),
            (
                "engine.kv_cache=1",
                "unknown key 'engine.kv_cache': did you mean 'engine.kv_cache_tok",
            ),
            ("algorithm.teacher.model=3", r"algorithm\.teacher\.model is 3: give a text"),
            ("algorithm.teacher.modl=x", "did you mean 'algorithm.teacher.model'"),
            ("learning_rate=1e-5", "there are .*learning.learning_rate, sft.learning_rate"),
            ("critic.kind=head", "did you mean 'algorithm.critic.kind'"),
            ("evaluation.every=3", "did you mean 'evaluation.during_rl.every'"),
            ("cluster.address=::1:6379", "or a head node's 'host:port'"),
            ("cluster.address=here", "cluster.address is 'here': give 'local', 'auto', or a head"),
            ("cluster.replicas=3", "3, which does not divide cluster.learners = 1: give a number"),
            ("cluster.workers=-1", "cluster.workers is -1: give a value of at least 0"),
            ("evaluation.k=[2]", "evaluation.k has 2: give numbers from 1 to"),
        ]
    ),
)
def test_bad_overrides_are_named(recipe: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe(str(recipe), [override])


def test_missing_malformed_and_unknown_recipes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_recipe(str(tmp_path / "none.toml"))
    broken = tmp_path / "broken.toml"
    broken.write_text("name = ")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_recipe(str(broken))
    with pytest.raises(ConfigError, match="did you mean 'demo'"):
        load_recipe("demmo")


def test_a_dumped_recipe_reads_back_the_same(tmp_path: Path) -> None:
    for name in shipped_recipes():
        recipe = load_recipe(name)
        path = tmp_path / f"{name}.toml"
        path.write_text(dump_recipe(recipe))
        assert load_recipe(str(path)) == recipe


def test_the_surface_of_a_recipe_is_small() -> None:
    keys = list(recipe_keys())
    assert len(keys) == len(set(keys)) <= 237
    own = {f"{prefix}{key}" for prefix, kind in sections(Recipe) for key in kind.model_fields}
    assert len(own.intersection(keys)) <= 140
    assert all(kind.__doc__ for _, kind in sections())


def test_recipes_do_not_change() -> None:
    recipe = check_recipe({"name": "x", "environment": {"name": "search"}}, "test")
    with pytest.raises(ValueError, match="frozen"):
        recipe.seed = 3


@pytest.mark.wing("vllm")
def test_a_choice_may_be_given_by_its_name_alone(recipe: Path) -> None:
    recipe.write_text('engine = "vllm"\ncurriculum = "by_success"\n' + MINIMAL)
    loaded = load_recipe(str(recipe))
    assert (loaded.engine.name, loaded.curriculum.kind) == ("vllm", "by_success")
    assert load_recipe(str(recipe), ["engine=embedded"]).engine.name == "embedded"
    assert load_recipe(str(recipe), ["engine.max_sequences=3"]).engine.max_sequences == 3
    head = load_recipe(str(recipe), ["algorithm.critic=head"]).algorithm.critic
    assert head.clip == 0.5
    with pytest.raises(ConfigError, match="unknown key 'engin'"):
        load_recipe(str(recipe), ["engin=vllm"])


def test_a_name_may_stand_for_a_table_that_has_nothing_else(recipe: Path) -> None:
    changed = load_recipe(str(recipe), ["scaffold=react", "algorithm=dapo", "model=tiny_demo"])
    assert changed.scaffold == ScaffoldConfig(name="react")
    assert (changed.algorithm.name, changed.model) == ("dapo", ModelConfig(name="tiny_demo"))
    both = load_recipe(str(recipe), ["scaffold=react", "scaffold.options.instructions=Go."])
    assert both.scaffold == ScaffoldConfig(name="react", options={"instructions": "Go."})
    with pytest.raises(ConfigError, match="rollout is 'react': give a table"):
        load_recipe(str(recipe), ["rollout=react"])


@pytest.mark.wing("vllm")
def test_another_choice_drops_what_it_does_not_have(recipe: Path) -> None:
    """So that any recipe, also one with every value spelled out, can get another engine."""
    recipe.write_text(MINIMAL + "[engine]\nmax_sequences = 7\nkv_cache_tokens = 9999\n")
    engine = load_recipe(str(recipe), ["engine=vllm"]).engine
    assert engine.has_servers
    assert engine.max_sequences == 7
    loaded = load_recipe(str(recipe), ["engine=mine.py:Own", "engine.options.n=1"])
    recipe.write_text(dump_recipe(loaded))
    assert load_recipe(str(recipe), ["engine=embedded"]).engine.max_sequences == 7
    for overrides in permutations(["engine.kv_cache_tokens=5", "engine=vllm"]):
        with pytest.raises(ConfigError, match=r"engine\.kv_cache_tokens goes with"):
            load_recipe(str(recipe), overrides)
    file = ["sft.demonstrations.file=x.jsonl"]
    recipe.write_text(MINIMAL + "[sft.demonstrations.behaviours]\nfaithful = 1\n")
    chosen = load_recipe(str(recipe), file).sft.demonstrations
    assert chosen == RecordedDemonstrations(file="x.jsonl")
    played = [*file, "sft.demonstrations={behaviours={hasty=1}}"]
    assert isinstance(load_recipe(str(recipe), played).sft.demonstrations, ScriptedDemonstrations)


def test_a_table_that_need_not_be_there_is_left_out_by_false(recipe: Path) -> None:
    recipe.write_text(MINIMAL + "[evaluation.during_rl]\nevery = 5\n")
    assert load_recipe(str(recipe)).evaluation.during_rl is not None
    assert load_recipe(str(recipe), ["evaluation.during_rl=false"]).evaluation.during_rl is None
    with pytest.raises(ConfigError, match="engine is False: give a table"):
        load_recipe(str(recipe), ["engine=false"])

"""Promise 9: unknown keys and contradictions are errors that say what to do."""

from pathlib import Path

import pytest

from turnwise.config import check_recipe, dump_recipe, load_recipe, recipe_keys, shipped_recipes
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


def test_tables_that_belong_to_others_take_any_key(recipe: Path) -> None:
    loaded = load_recipe(
        str(recipe),
        ["environment.options.top_k=5", "sft.behaviours.hasty=1", "sandbox.limits.seconds=5.0"],
    )
    assert loaded.environment.options == {"top_k": 5}
    assert loaded.sandbox == {"limits": {"seconds": 5.0}}
    assert loaded.sft.behaviours == {"hasty": 1.0}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.stesp=3", "did you mean 'train.steps'"),
        ("trian.steps=3", "did you mean 'train.steps'"),
        ("steps", "write key=value"),
        ("name.x=1", "is a value, not a table"),
        ("train.steps=-1", "train.steps"),
        ("train.steps=many", "train.steps"),
    ],
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
    assert len(keys) == len(set(keys)) <= 112


def test_recipes_do_not_change() -> None:
    recipe = check_recipe({"name": "x", "environment": {"name": "search"}}, "test")
    with pytest.raises(ValueError, match="frozen"):
        recipe.seed = 3


def test_an_engine_may_be_given_by_its_name_alone(recipe: Path) -> None:
    recipe.write_text('engine = "vllm"\n' + MINIMAL)
    assert load_recipe(str(recipe)).engine.name == "vllm"
    assert load_recipe(str(recipe), ["engine=embedded"]).engine.name == "embedded"
    assert load_recipe(str(recipe), ["engine.max_sequences=3"]).engine.max_sequences == 3
    recipe.write_text(MINIMAL + "[engine]\nmax_sequences = 7\n")
    loaded = load_recipe(str(recipe), ["engine=vllm", "engine.deterministic=false"])
    assert (loaded.engine.name, loaded.engine.max_sequences) == ("vllm", 7)
    assert not loaded.engine.deterministic
    with pytest.raises(ConfigError, match="unknown key 'engin'"):
        load_recipe(str(recipe), ["engin=vllm"])

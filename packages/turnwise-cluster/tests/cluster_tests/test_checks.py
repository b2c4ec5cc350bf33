"""What several processes cannot do together is refused in one line, each of it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.forward.test_routers import moe
from tests.learning import conftest as learning
from turnwise.config import Recipe, load_recipe
from turnwise.errors import ConfigError
from turnwise.training.single import learner_of
from turnwise_cluster.resources import check_cluster, check_model
from turnwise_cluster.settings import cluster_of

model_folders, load_model = learning.model_folders, learning.load_model
CASES = [
    ("train.steps=0 sft.steps=0 evaluation.sft=false", "which leaves nothing to do together"),
    ("engine=vllm model.lora_rank=2", "engine.transport=adapters sends them alone"),
]


def recipe_of(overrides: str) -> Recipe:
    return load_recipe("demo", ["cluster.learners=2", *overrides.split()])


@pytest.mark.parametrize(("overrides", "message"), CASES)
def test_what_one_process_alone_can_do_is_refused(overrides: str, message: str) -> None:
    recipe = recipe_of(overrides)
    with pytest.raises(ConfigError, match=f"{message}.*: set cluster.learners=1, or leave the oth"):
        check_cluster(recipe)
    check_cluster(recipe_of(""))
    alone = recipe.model_copy(
        update={"cluster": cluster_of(recipe).model_copy(update={"learners": 1})}
    )
    check_cluster(alone)


def model_of(device: str = "cpu", **config: Any) -> Any:
    settings = SimpleNamespace(**config)
    settings.get_text_config = lambda: settings
    return SimpleNamespace(config=settings, device=torch.device(device))


def test_models_whose_rows_have_no_slices_are_refused(load_model: Callable[..., Any]) -> None:
    recipe = load_recipe("demo", ["cluster.learners=6", "cluster.sequence_ranks=2"])
    check_model(recipe, load_model("llama"))
    with pytest.raises(ConfigError, match=r"in slices: it attends by eager, and not by sdpa. Set"):
        check_model(recipe, load_model("gemma2"))
    three = load_recipe("demo", ["cluster.learners=6", "cluster.sequence_ranks=3"])
    with pytest.raises(ConfigError, match="its 4 heads of attention do not divide by that"):
        check_model(three, load_model("llama"))
    reads = load_model("llama")
    reads.image_reader = object()
    with pytest.raises(ConfigError, match="in slices: it reads images"):
        check_model(recipe, reads)
    check_model(recipe_of(""), reads)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("cluster.learners=3", "its 8 experts do not divide by cluster.learners"),
        ("model.dtype=bfloat16", "weights in bfloat16 have not been tried with it"),
    ],
)
def test_experts_that_cannot_stay_are_refused(overrides: str, message: str) -> None:
    check_model(recipe_of("cluster.expert_parallel=true"), moe("qwen3_moe"))
    with pytest.raises(ConfigError, match=message):
        check_model(recipe_of(f"cluster.expert_parallel=true {overrides}"), moe("qwen3_moe"))


def test_a_model_without_experts_has_none_to_send_tokens_to(load_model: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=r"has no experts: set cluster.expert_parallel=false"):
        check_model(recipe_of("cluster.expert_parallel=true"), load_model("llama"))


def test_slices_divide_learners() -> None:
    with pytest.raises(ConfigError, match=r"does not divide cluster.learners = 2: give a number"):
        recipe_of("cluster.sequence_ranks=3")


@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="there are GPUs enough")
def test_gpus_must_be_enough() -> None:
    with pytest.raises(ConfigError, match="one for each GPU, and this machine has"):
        check_model(recipe_of(""), model_of("cuda"))


def test_a_learner_without_a_run_is_of_one_process() -> None:
    components: Any = SimpleNamespace(recipe=recipe_of("evaluation.during_rl=false"))
    with pytest.raises(ConfigError, match=r"turnwise\.make_learner needs a learner in one process"):
        learner_of(components)

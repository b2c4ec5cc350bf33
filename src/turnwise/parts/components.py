"""The working parts of a recipe: environment, model, scaffold, engine, ready to roll out.

Training, evaluation and play begin here, so that they mean the same thing by a recipe. What cannot
work together is refused here, before anything slow begins.

Next: `training/run.py`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.config import Recipe, RolloutConfig
from turnwise.conflicts import Claim, Need, check
from turnwise.engines.base import Engine, EngineSetup
from turnwise.engines.registry import ENGINES, make_engine
from turnwise.environments.base import Environment
from turnwise.forward.compute_type import choose_compute_type
from turnwise.forward.hidden import base_model
from turnwise.forward.images import FAMILIES, reader_of
from turnwise.forward.routing import check_routing
from turnwise.learning.certainty import Certainty
from turnwise.learning.parity import Checked, check_parity
from turnwise.models.copies import copy_to_sample_from, trained_weights
from turnwise.models.load import device_of, load_model, load_tokenizer, model_type
from turnwise.models.places import check_context
from turnwise.parts.first_checks import Known, known_of
from turnwise.parts.resources import Resources
from turnwise.parts.reward_source import RewardSource
from turnwise.parts.rewarding import parts_of_models, reward_of
from turnwise.rewards.composition import Reward
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.rollout.runner import Player, Progress, RolloutRunner, Workers
from turnwise.scaffolds.base import Scaffold
from turnwise.scaffolds.registry import make_scaffold, shows_images, with_date
from turnwise.wings import wings


@dataclass(frozen=True)
class Components:
    """The parts of a run. `turnwise.build` makes them.

    >>> ids = components.tokenizer("Which module defines TarFile?")["input_ids"]
    >>> tasks = components.environment.tasks("heldout")
    """

    recipe: Recipe
    environment: Environment
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    scaffold: Scaffold
    engine: Engine
    semaphore: PrioritySemaphore
    """Bounds the episodes under way, whatever is played at the same time."""
    reward: Reward | None = None
    """The reward in place of the environment's own."""
    reward_sources: Mapping[str, RewardSource] = field(default_factory=dict)
    """Models of wings that measure parts of the reward, by their sections."""
    player: Player | None = None
    """Plays the episodes in place of turnwise's own loop: a wing's, such as a user's own agent."""
    workers: Workers | None = None
    """The processes that play the episodes, in place of this one."""
    why_compute_dtype: str = ""
    """Why the recipe's `learning.compute_dtype` is what it is."""
    weights: Path | None = None
    """The checkpoint that the model was loaded from; None for the recipe's own model."""
    folder: Path | None = None
    """The run's folder, if it is one."""

    def runner(
        self,
        limits: RolloutConfig,
        variant: tuple[str, Environment] | None = None,
        progress: Progress | None = None,
        step: int = 0,
    ) -> RolloutRunner:
        """Rollouts under the given limits, in an ablation of the environment if one is given, with
        its name; `progress` is called with each finished trajectory; the reward is a step's."""
        name, environment = variant or ("", self.environment)
        return RolloutRunner(
            environment,
            self.scaffold,
            self.engine,
            limits,
            self.semaphore,
            progress=progress,
            reward=self.reward,
            weights=self.reward.weights(step) if self.reward is not None else {},
            player=self.player,
            workers=self.workers,
            variant=name,
        )

    async def load(self, version: int) -> None:
        """Let the engine sample with the model's present weights, from now on as `version`.

        Where sampling goes on beside learning they are copied; else they are the engine's own, or
        those that it looks at, as servers have copies anyhow.
        """
        weights = trained_weights(self.model) if _copied(self.recipe) else {}
        await self.engine.load_weights(weights, version)

    async def stop(self) -> None:
        """End what goes on in the background: the gateway, the processes that play, and the
        engine's work. Idempotent."""
        if self.player is not None:
            await self.player.stop()
        if self.workers is not None:
            await self.workers.stop()
        await self.engine.stop()

    async def freeze(self) -> None:
        """Let the player take the present weights, those with which RL begins."""
        if self.player is not None:
            await self.player.freeze(self.model)

    async def check(self) -> Checked:
        """Give the parity of engine and learner with the model itself, and its bound, after loading
        the present weights. Raises NotSupportedError where they do not say of sampled tokens what
        the model does, and as `Workers.start` where processes that play cannot be ready."""
        recipe, model = self.recipe, self.model
        if self.workers is not None:
            await self.workers.start()
        await self.load(0)
        positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        longest = min(recipe.rollout.max_tokens, positions or recipe.rollout.max_tokens)
        return await check_parity(
            self.engine,
            model,
            longest,
            recipe.parity_bound,
            autocast=recipe.learning.autocast,
            rounded=recipe.rounded,
            strict=recipe.token_engine.parity_bound > 0,
        )


def claims_of_sight(recipe: Recipe) -> Iterator[Claim]:
    """The claims of scaffold, model and engine on an environment that shows images; of the model
    only the configuration is loaded."""
    families = ", ".join(FAMILIES)
    shown, kind = shows_images(recipe.scaffold.name), model_type(recipe.model)
    blind = {
        f"scaffold {recipe.scaffold.name}": (shown, "choose tags, react or code"),
        f"model {recipe.model.name} ({kind})": (
            kind in FAMILIES,
            f"name one of the families {families}",
        ),
        f"engine {recipe.engine.name}": (
            ENGINES.get(recipe.engine.name).takes_images,
            "set engine.name=embedded or vllm",
        ),
    }
    for setting, (sees, remedy) in blind.items():
        if not sees:
            yield Claim(setting, denies={Need.IMAGES: "takes words alone"}, remedy=remedy)


def build_components(
    recipe: Recipe,
    weights: Path | None = None,
    folder: Path | None = None,
    resources: Resources | None = None,
    known: Known | None = None,
) -> Components:
    """Build everything a recipe names, but for what is `known` already; `weights` is a checkpoint
    of such a run, `folder` is the run's: an engine has its files there, and a judge its answers.
    Without `resources` this process and its machine do all.

    Raises ConfigError or DataError, in one line, for whatever the recipe gets wrong.
    """
    recipe.check_tokens()
    resources = resources or Resources()
    known = known or known_of(recipe)
    environment = known.environment
    if environment.shows_images:
        check([*environment.claims(), *claims_of_sight(recipe)])
    longest, in_files = recipe.rollout.max_tokens, recipe.policy_in_files
    sees, tokenizer = model_type(recipe.model) in FAMILIES, load_tokenizer(recipe.model)
    recipe = recipe.model_copy(update={"scaffold": with_date(recipe.scaffold, tokenizer)})
    # Before the weights, which have the reader of images: a chat template may be refused.
    model: PreTrainedModel
    encode = (lambda png: _image_tokens(model, png)) if sees else None
    scaffold = make_scaffold(recipe.scaffold, tokenizer, environment.tools(), encode)
    model, _ = load_model(recipe.model, weights, recipe.seed, longest, in_files, tokenizer)
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    check_context(context, longest)
    device = device_of(recipe.model)
    chosen = choose_compute_type(base_model(model), recipe.learning.compute_dtype, device)
    learning = recipe.learning.model_copy(update={"compute_dtype": chosen.name})
    recipe = recipe.model_copy(update={"learning": learning})
    if recipe.rollout.routing_replay:
        check_routing(base_model(model))
    places = recipe.token_engine.max_concurrent_episodes or recipe.token_engine.max_sequences
    components = Components(
        recipe,
        environment,
        model,
        tokenizer,
        scaffold,
        _engine(recipe, model, tokenizer, folder, resources),
        PrioritySemaphore(places),
        workers=resources.workers,
        why_compute_dtype=chosen.why,
        weights=weights,
        folder=folder,
    )
    for name, section in recipe.added().items():
        if (make := wings().made_by(name)) is not None:
            components = make(section, components)
    if resources.workers is not None:
        resources.workers.set_up(recipe, tokenizer, environment)
    # After the sections: the models that they add measure parts of the reward.
    certainty = Certainty(model, recipe.learning, recipe.rollout.temperature)
    models = parts_of_models(recipe, components.reward_sources, certainty)
    return replace(components, reward=reward_of(recipe, known.algorithm, environment, models))


def _image_tokens(model: PreTrainedModel, png: bytes) -> list[int]:
    reader = reader_of(model)
    assert reader is not None  # the model is of a family that has one
    return reader.tokens(png)


def _engine(
    recipe: Recipe,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path | None,
    resources: Resources,
) -> Engine:
    sampled = copy_to_sample_from(model) if _copied(recipe) else model
    limit, own_files = recipe.rollout.max_tokens, None if folder is None else folder / "vllm"
    asked = recipe.rollout.routing_replay, resources.colocated, resources.servers
    materials = (recipe.token_engine, base_model(sampled), tokenizer, limit, own_files)
    return make_engine(EngineSetup(*materials, *asked))


def _copied(recipe: Recipe) -> bool:
    """Whether the engine samples from a copy of the model."""
    return recipe.train.max_staleness > 0 and ENGINES.get(recipe.engine.name).shares_weights

"""An algorithm is a choice of parts, and their numbers that are not at the defaults.

Next: `algorithms/outcome_advantages.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import Any

from turnwise.algorithms.parts import BYPASS, PARTS, SELF_TEACHERS, Number, Part, Requirement, Trait


@dataclass(frozen=True)
class Algorithm:
    """The choices of an objective. Example: make_algorithm("grpo", {"clip_high": 0.28})."""

    name: str
    source: str
    estimator: str = "grpo"
    """Rewards of a batch -> advantages."""
    whitening: bool = False
    """Whether advantages get mean 0 and standard deviation 1 over all sampled tokens of a batch."""
    objective: str = "clip"
    """Ratio and advantage -> loss of a token."""
    ratio_level: str = "token"
    aggregation: str = "sequence_mean_token_mean"
    """Numbers of trained tokens of a batch's sequences -> the weight of each one's token losses."""
    group_filter: str = "none"
    trajectory_filter: str = "none"
    """Filter of the trajectories of the loss; the others stay in the baseline."""
    reward_shaping: str = "none"
    """The penalty that is taken off the task's reward before trajectories are compared."""
    token_filter: str = "none"
    """Filter of tokens that are taken out, or held back, by advantages and probabilities alone."""
    correction: str = BYPASS
    """Weights for samples of another policy."""
    divergence: str = "k3"
    """Estimator of the divergence from the reference, on sampled tokens."""
    extension: str = "none"
    """An addition to the objective, such as learning from earlier trajectories, too."""
    rollout: str = "independent"
    """The way in which groups are played."""
    kl_coefficient: float = 0.0
    """The coefficient of the divergence from the reference model, added to the loss."""
    kl_reward_coefficient: float = 0.0
    """The coefficient of log(sampling policy / reference), subtracted from each token's reward:
    PPO's place for the KL term, which estimators carry back. One of the two is 0."""
    kl_target: float = 0.0
    """The mean divergence per token, in nats, that the coefficient is adapted to keep; 0: none."""
    kl_horizon: float = field(default=10_000.0, metadata={"low": 1.0})
    """Trajectories in which an adapted coefficient can change by a fifth."""
    entropy_coefficient: float = 0.0
    """The coefficient of the entropy of the trained positions, subtracted from the loss."""
    observation_coefficient: float = 0.0
    """The coefficient of the cross-entropy of what tools and environment wrote (ECHO)."""
    demonstration_coefficient: float = 0.0
    """The coefficient of the cross-entropy of demonstrations (PTX; Kimi K2, arXiv 2507.20534)."""
    success_coefficient: float = 0.0
    """The coefficient of the cross-entropy of successful trajectories (VAPO, arXiv 2504.05118)."""
    self_teacher_coefficient: float = 0.0
    """The coefficient of the divergence from the self-teacher (SDPO, arXiv 2601.20802)."""
    feedback_teacher_coefficient: float = 0.0
    """The coefficient of the divergence from the feedback teacher (HERO, arXiv 2606.11559)."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """The numbers of the chosen parts that are not at their defaults, by name."""
    differs: str = ""
    """The points in which the row differs from its source; empty where in none."""

    def part(self, choice: str) -> Part:
        """Look up the part that was chosen, once. Example: grpo.part("aggregation").description."""
        if choice not in self._parts:
            self._parts[choice] = PARTS[choice].get(getattr(self, choice))
        return self._parts[choice]

    def call(self, choice: str, *given: Any) -> Any:
        """Call the chosen part, with its numbers: `algorithm.call("group_filter", rewards)`."""
        return self.function(choice)(*given)

    def function(self, choice: str) -> Callable[..., Any]:
        """The function of the part that was chosen, with its numbers filled in."""
        return partial(self.part(choice).function, **self.numbers_of(choice))

    def numbers_of(self, choice: str) -> dict[str, Any]:
        """The numbers of one choice: `grpo.numbers_of("objective")["clip_high"]` is 0.2."""
        return {
            key: self.numbers.get(key, setting.default)
            for key, setting in self.part(choice).numbers.items()
        }

    @cached_property
    def _parts(self) -> dict[str, Part]:
        """Parts that were looked up, kept so that editing a user's file does not change a run."""
        return {}

    @property
    def needs(self) -> frozenset[Requirement]:
        """Everything that has to be there."""
        taught = {need for need in SELF_TEACHERS if getattr(self, f"{need}_coefficient")}
        return frozenset(taught).union(*(self.part(choice).needs for choice in PARTS))

    @property
    def has_kl(self) -> bool:
        """Whether there is a KL term, in the loss or in the reward."""
        return bool(self.kl_coefficient or self.kl_reward_coefficient)

    @property
    def has_reference(self) -> bool:
        """Whether a reference model is needed."""
        return self.has_kl or Requirement.PROCESS_REWARDS in self.needs

    @property
    def has_terms_without_advantage(self) -> bool:
        """Whether a token whose advantage is 0 can have a gradient, or a part in another's."""
        regularised = self.kl_coefficient or self.entropy_coefficient
        ranked = self.token_filter != "none"
        return bool(regularised) or ranked or not self.has_trait("objective", Trait.BY_ADVANTAGE)

    def has_trait(self, choice: str, trait: Trait) -> bool:
        return trait in self.part(choice).traits


COEFFICIENTS = {
    entry.name: Number(getattr(Algorithm, entry.name), entry.metadata.get("low", 0.0))
    for entry in fields(Algorithm)
    if entry.type is float  # a class and no text, as annotations are not postponed here
}
"""Numbers that belong to no part."""

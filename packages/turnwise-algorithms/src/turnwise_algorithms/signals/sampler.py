"""The distributions that tokens were sampled from, whole, and their part in score centering.

An engine that samples from changed weights says how it changes them: a class method
`sampled_weights(weights, **options)`, from a mapping of names to tensors to such a mapping.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from turnwise.algorithms.algorithm import Algorithm
from turnwise.config import LearningConfig
from turnwise.engines.registry import ENGINES
from turnwise.forward.hidden import hidden_states
from turnwise.forward.logprobs import LOGITS_PER_CHUNK, OutputLayer, in_chunks
from turnwise.learning.batch import MicroBatch, policy_examples
from turnwise.learning.credits import Credits
from turnwise.learning.optimizer import add_gradient
from turnwise.learning.signals.base import Signals
from turnwise.learning.signals.makers import MakeSecond, SecondParts, SignalMaker
from turnwise.types import Group
from turnwise_algorithms.score_centering import expected
from turnwise_algorithms.signals.beside import Beside

Weights = Mapping[str, Tensor]


class Sampler(Beside):
    """A copy of the policy that keeps the weights with which a step was sampled."""

    def __init__(
        self,
        policy: nn.Module,
        algorithm: Algorithm,
        learning: LearningConfig,
        temperature: float,
        changed: Callable[[Weights], Weights],
    ) -> None:
        super().__init__(policy, algorithm, learning, temperature)
        self._changed = changed
        self.model = copy.deepcopy(policy).requires_grad_(False).eval()

    def measure(self, groups: Sequence[Group]) -> Signals:
        """Take the weights that sampled: the policy's, before its update."""
        # Before the update, with `max_staleness` 0: these weights are those that sampled.
        self.model.load_state_dict(self._changed(self.policy.state_dict()))
        return Signals()

    def add_gradient(self, groups: Sequence[Group], credits: Credits) -> str:
        problem = ""
        for batch in self.batches(policy_examples(groups, credits, self.algorithm, True)):
            losses = batch.weight * batch.advantage * self._expected(batch)
            problem = problem or batch.problem(losses.detach())
            add_gradient(losses.sum())
        return problem

    def _expected(self, batch: MicroBatch) -> Tensor:
        read = batch.inputs, batch.selected, self.learning.autocast
        layers = [OutputLayer.of(model, self.temperature) for model in (self.policy, self.model)]
        with torch.no_grad():
            sampled = hidden_states(self.model, *read)
        own = hidden_states(self.policy, *read)
        numbers = self.algorithm.numbers_of("objective")
        low, high = numbers["clip_low"], numbers["clip_high"]

        def function(here: Tensor, there: Tensor) -> tuple[Tensor, ...]:
            return (expected(layers[0](here), layers[1](there).detach(), low, high),)

        # Half as many rows: the logits of two models are held at once.
        return in_chunks(function, layers[0].rows(LOGITS_PER_CHUNK // 2), own, sampled)[0]


class SamplerMaker(SignalMaker):
    def second_model(self, given: SecondParts) -> MakeSecond:
        engine, learning = given.recipe.token_engine, given.recipe.learning
        how = getattr(ENGINES.get(engine.name), "sampled_weights", None)
        changed = partial(how, **engine.build_options()) if how else dict
        return lambda own: Sampler(own.model, given.algorithm, learning, own.temperature, changed)

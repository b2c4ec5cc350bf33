"""The policy update: groups of graded trajectories in, new weights and metrics out.

An update is one optimizer step; its gradient is the sum over micro-batches of weighted token
losses, whose weights come from the whole optimizer batch. Not here: what the loss is
(`turnwise.algorithms`), how trajectories become tensors (`batch`).
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from turnwise.algorithms.losses import TrainedTokens, policy_loss
from turnwise.algorithms.parts import BYPASS
from turnwise.algorithms.registry import Algorithm
from turnwise.config import LearningConfig
from turnwise.errors import ConfigError
from turnwise.learning.batch import Example, MicroBatch, collate, pack, policy_examples
from turnwise.learning.logprobs import check_supported, token_logprobs
from turnwise.learning.optimizer import Optimizer, prepare_for_training, warm_up
from turnwise.learning.tally import Tally
from turnwise.types import Group


@dataclass(frozen=True)
class UpdateReport:
    """What an update did, in numbers for a log and in words for people."""

    metrics: dict[str, float]
    problems: list[str]


class PolicyLearner:
    """Updates a causal language model in place by a policy gradient.

    Args:
        model: of transformers, or wrapped by peft (then only the adapters are trained).
        reference: the model of the KL term, never changed. For a model wrapped by peft None means
            the model without its adapters. None where `algorithm.kl_coefficient` is 0.
        temperature: of sampling; log-probabilities are of logits / temperature. 0 means 1, as in
            `engines.Sampling`.

    Raises ConfigError when reference and KL coefficient do not go together, NotSupportedError for a
    model whose logits it cannot reproduce.
    """

    def __init__(
        self,
        model: nn.Module,
        reference: nn.Module | None,
        config: LearningConfig,
        algorithm: Algorithm,
        temperature: float = 1.0,
    ) -> None:
        self.model = model
        self.reference = reference
        self.config = config
        self.algorithm = algorithm
        self.temperature = temperature or 1.0
        self.device = next(model.parameters()).device
        self._check_reference()
        prepare_for_training(model)
        check_supported(model)
        if reference is not None:
            reference.requires_grad_(False).eval()
        self.optimizer = Optimizer(
            model,
            config.learning_rate,
            warm_up(config.warmup_steps),
            config.betas,
            config.weight_decay,
            config.max_gradient_norm,
        )

    def update(self, groups: Sequence[Group]) -> UpdateReport:
        """`updates_per_step` optimizer updates, each on an equal share of the groups.

        Every graded trajectory must have its advantage (`batch.assign_advantages`). A share in
        which nothing can be trained makes no update; one whose loss or gradient is not finite
        leaves weights and optimizer untouched and is told of in `problems`. Metrics that nothing
        was measured for are absent.
        """
        prepare_for_training(self.model)
        shares = np.array_split(np.arange(len(groups)), self.config.updates_per_step)
        batches = [self._examples([groups[index] for index in share]) for share in shares]
        totals = Tally()
        problems: list[str] = []
        for examples in filter(None, batches):
            tally, problem = self._update_once(examples, measure_gap=totals.updates == 0)
            if problem:
                problems.append(problem)
            else:
                totals.add(tally)
        metrics = {**totals.metrics(), "policy/skipped_updates": float(len(problems))}
        return UpdateReport(metrics, problems)

    def state(self) -> dict[str, Any]:
        """Optimizer state and number of updates; the weights are saved with the model."""
        return self.optimizer.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken."""
        self.optimizer.load_state(state)

    def _examples(self, groups: Sequence[Group]) -> list[Example]:
        """One share's weighted examples, less those whose gradient is exactly zero."""
        examples = policy_examples(groups, self.algorithm, self.config.mask_observations)
        examples = [e for e in examples if e.trained.any()]
        if not self.algorithm.has_terms_without_advantage:
            examples = [e for e in examples if e.advantage[e.trained].any()]
        if self.config.mask_observations and self.algorithm.correction == BYPASS:
            return examples
        return self._rescored(examples)

    def _rescored(self, examples: Sequence[Example]) -> list[Example]:
        """With the log-probabilities of the policy as it is now: where no policy sampled the token,
        and, unless the correction is to bypass it, as the policy that ratios are to."""
        scored = []
        for members in pack(examples, self.config.tokens_per_micro_batch):
            with torch.no_grad():
                logprobs, _ = self._logprobs(self.model, collate(members, self.device))
            counts = [int(member.trained.sum()) for member in members]
            for member, own in zip(members, torch.split(logprobs.cpu(), counts), strict=True):
                now = np.full(len(member.ids), np.nan, np.float32)
                now[member.trained] = own.numpy()
                behaviour = np.where(member.sampled, member.behaviour_logprob, now)
                old = behaviour if self.algorithm.correction == BYPASS else now
                scored.append(replace(member, behaviour_logprob=behaviour, old_logprob=old))
        return scored

    def _update_once(self, examples: Sequence[Example], measure_gap: bool) -> tuple[Tally, str]:
        """One optimizer update; a problem, if there is one, has left everything as it was."""
        tally = Tally(updates=1)
        for members in pack(examples, self.config.tokens_per_micro_batch):
            batch = collate(members, self.device)
            tokens = self._forward(batch)
            result = policy_loss(tokens, self.algorithm)
            problem = _non_finite(tokens, result.losses, batch)
            if problem:
                self.optimizer.clear()
                return tally, problem
            loss = result.losses.sum()
            torch.autograd.backward(loss)
            tally.add_losses(result, len(batch.targets), loss.item())
            if measure_gap:
                tally.add_gap((tokens.logprob - tokens.behaviour_logprob)[batch.sampled])
        norm = self.optimizer.apply()
        tally.gradient_norm = norm
        if not math.isfinite(norm):
            names = f"{examples[0].name} to {examples[-1].name}"
            return tally, f"the gradient's norm is {norm}, all losses being finite; from {names}"
        return tally, ""

    def _forward(self, batch: MicroBatch) -> TrainedTokens:
        logprob, entropy = self._logprobs(
            self.model, batch, entropy_gradient=self.algorithm.entropy_coefficient > 0
        )
        return TrainedTokens(
            logprob=logprob,
            behaviour_logprob=batch.behaviour_logprob,
            old_logprob=batch.old_logprob,
            advantage=batch.advantage,
            weight=batch.weight,
            sequence=batch.sequence,
            entropy=entropy,
            reference_logprob=self._reference_logprobs(batch),
        )

    def _reference_logprobs(self, batch: MicroBatch) -> Tensor | None:
        if not self.algorithm.kl_coefficient:
            return None
        adapted: Any = self.model
        adapters = adapted.disable_adapter() if self.reference is None else nullcontext()
        with torch.no_grad(), adapters:
            return self._logprobs(self.reference or self.model, batch)[0]

    def _logprobs(
        self, model: nn.Module, batch: MicroBatch, entropy_gradient: bool = False
    ) -> tuple[Tensor, Tensor]:
        return token_logprobs(
            model,
            batch.inputs,
            batch.selected,
            batch.targets,
            self.temperature,
            self.config.autocast,
            entropy_gradient=entropy_gradient,
        )

    def _check_reference(self) -> None:
        adapted = hasattr(self.model, "disable_adapter")
        if self.algorithm.kl_coefficient and self.reference is None and not adapted:
            raise ConfigError("kl_coefficient is not 0: the learner needs a reference model")
        if self.reference is not None and not self.algorithm.kl_coefficient:
            raise ConfigError("a reference model is loaded, but kl_coefficient is 0: set it")


def _non_finite(tokens: TrainedTokens, losses: Tensor, batch: MicroBatch) -> str:
    """Names the sequences with a number that is none; clamped ratios would hide an infinite one."""
    logprobs = tokens.logprob.detach() + tokens.behaviour_logprob + tokens.old_logprob
    bad = ~torch.isfinite(losses.detach() + logprobs)
    if not bad.any():
        return ""
    rows = sorted(set(batch.sequence[bad].tolist()))
    return f"the loss is not finite in {', '.join(batch.names[row] for row in rows)}"

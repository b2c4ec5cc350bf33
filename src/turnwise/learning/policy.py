"""The policy update: groups of graded trajectories in, new weights and metrics out. An update is an
optimizer step: micro-batches add up losses whose weights come from the whole optimizer batch.

Next: `storage/checkpoint.py`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from turnwise.algorithms.algorithm import Algorithm
from turnwise.algorithms.kl import adapted_coefficient
from turnwise.algorithms.losses import TrainedTokens, policy_loss
from turnwise.algorithms.parts import BYPASS
from turnwise.config import LearningConfig
from turnwise.errors import ConfigError
from turnwise.forward.hidden import Images, base_model, note_packing
from turnwise.forward.logprobs import check_supported
from turnwise.forward.prefix_trees import check_sharing
from turnwise.learning.auxiliary import (
    AuxiliaryLoss,
    AuxiliaryTerm,
    auxiliary_terms,
    demonstration_terms,
)
from turnwise.learning.batch import (
    Example,
    MicroBatch,
    apply_token_filter,
    by_group,
    own_micro_batches,
    policy_examples,
)
from turnwise.learning.credits import Credits
from turnwise.learning.learner import UpdateReport
from turnwise.learning.metric_sums import GradientNoise, MetricSums, UpdateMetrics
from turnwise.learning.optimizer import Optimizer, add_gradient, prepare_for_training
from turnwise.learning.ranks import ALONE, Compute, Ranks
from turnwise.learning.scoring import (
    Measure,
    Sequenced,
    batch_logprobs,
    logprobs,
    sampled_logprobs,
    score,
)
from turnwise.learning.selection import shares
from turnwise.learning.shared_prefixes import build_prefix_trees, own_tree_batches
from turnwise.learning.signals.base import no_numbers, together
from turnwise.models.copies import put_weights
from turnwise.tokens import KeptTokens
from turnwise.types import Group, Trajectory


class PolicyLearner:
    """Updates a causal language model in place by a policy gradient.

    Args:
        model: of transformers, or wrapped by peft (then only the adapters are trained).
        reference: the model of the KL term, never changed. For a model wrapped by peft None means
            the model without its adapters. None where the algorithm has no KL term.
        temperature: of sampling; log-probabilities are of logits / temperature. 0 means 1, as in
            `engines.Sampling`.
        ranks: learn together, each from a part of the rows; all are to make the same calls.

    Raises ConfigError when reference and KL coefficient do not go together, NotSupportedError for a
    model whose logits it cannot reproduce.
    >>> report = turnwise.make_learner(components).update(groups, credits)
    """

    def __init__(
        self,
        model: nn.Module,
        reference: nn.Module | None,
        config: LearningConfig,
        algorithm: Algorithm,
        temperature: float = 1.0,
        ranks: Ranks = ALONE,
    ) -> None:
        self.model = model
        self.reference = reference
        self.config = config
        self.algorithm = algorithm
        self.temperature = temperature or 1.0
        self.kl_coefficient = algorithm.kl_coefficient or algorithm.kl_reward_coefficient
        """The present coefficient; it begins at the algorithm's."""
        self.device = next(model.parameters()).device
        self._check_reference()
        prepare_for_training(model)
        # Comparisons take whole weights, of which `shard` leaves this rank a part.
        check_supported(model)
        if config.share_prefixes:
            check_sharing(model)
        self._ranks = ranks
        self._scores = partial(batch_logprobs, slicing=ranks.slicing)
        note_packing(model, config.autocast)
        self.compute = ranks.shard(model)
        """Computes with the model, of which this rank may have a part."""
        self._compute_reference: Compute | None = None
        if reference is not None:
            reference.requires_grad_(False).eval()
            note_packing(reference, config.autocast)
            self._compute_reference = ranks.shard(reference)
        self.optimizer = Optimizer(model, config.learning_rate, config, ranks=ranks)

    def score(
        self,
        sequences: Sequence[Sequenced],
        measure: Measure | None = None,
        images: Images = (),
        kept: Sequence[KeptTokens | None] = (),
    ) -> list[NDArray[np.float32]]:
        given = self.config, self.temperature, measure or logprobs, images, kept
        ranks = self._ranks
        return score(self.model, sequences, *given, ranks, self.compute, ranks.slicing)

    def reference_logprobs(self, members: Sequence[Trajectory]) -> list[NDArray[np.float64]]:
        given = members, self.config, self.temperature, self._ranks
        with self._as_reference() as compute:
            return sampled_logprobs(self.model, *given, compute, self._ranks.slicing)

    def update(
        self,
        groups: Sequence[Group],
        credits: Credits,
        demonstrations: Sequence[Example] = (),
        auxiliary: AuxiliaryLoss | None = None,
        measure_variance: bool = False,
    ) -> UpdateReport:
        """Make `updates_per_step` optimizer updates in each of `epochs` passes, each on an equal
        share of the groups with trained trajectories and of the demonstrations, with the auxiliary
        loss's gradient.

        A share in which nothing can be trained on makes no update; one whose loss or gradient is
        not finite changes nothing and is named in `problems`. Metrics that nothing was measured for
        are absent. With `measure_variance` the first gradient is made by groups (`GradientNoise`).
        """
        prepare_for_training(self.model)
        count = self.config.updates_per_step
        kept = [g for g in groups if any(member.id in credits.trained for member in g.graded)]
        parts = shares(kept, count)
        batches = [
            (self._examples(part, credits), auxiliary_terms(part, self.algorithm)) for part in parts
        ]
        totals, weights = MetricSums(), self.optimizer.parameters
        problems: list[str] = []
        measured: dict[str, float] = {}
        learning_rate = self.optimizer.present_learning_rate
        mixtures = shares(demonstrations, count)
        tokens = no_numbers(kept, credits.trained)
        epoch = list(zip(parts, batches, mixtures, strict=True))
        for number, (part, (examples, terms), mixed) in enumerate(epoch * self.config.epochs):
            alone = auxiliary is not None and auxiliary.has_update(part, credits)
            if not examples and not terms and not alone:
                continue
            first = totals.updates == 0
            noise = GradientNoise(weights, self._ranks) if measure_variance and first else None
            # Numbers of tokens are those of the first epoch.
            watch = UpdateMetrics(first, tokens if number < count else None, noise)
            terms = [*terms, *demonstration_terms(mixed, self.algorithm)]
            other = partial(auxiliary.add_gradient, part, credits) if auxiliary else None
            sums, problem = self._update_once(examples, watch, terms, other)
            if problem:
                problems.append(problem)
                continue
            totals.add(sums)
            if noise is not None:
                measured = noise.metrics(len(part))
        # Each rank has filled in the numbers of the rows that it computed.
        tokens = together(self._ranks.gather(tokens))
        told = {
            "policy/skipped_updates": float(len(problems)),
            "policy/learning_rate": learning_rate,
        }
        metrics = totals.metrics() | measured | told
        metrics = self._with_kl(metrics, groups, credits.kl_reference)
        return UpdateReport(metrics, problems, tokens)

    def lower_learning_rate(self, factor: float) -> float:
        self.optimizer.learning_rate_factor *= factor
        return self.optimizer.present_learning_rate

    def take_weights(self, model: nn.Module) -> None:
        """Masters are those of `load_state`."""
        put_weights(self.model, model)

    def state(self) -> dict[str, Any]:
        return {**self.optimizer.state(), "kl_coefficient": self.kl_coefficient}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.optimizer.load_state(state)
        self.kl_coefficient = float(state["kl_coefficient"])

    def _with_kl(
        self, metrics: dict[str, float], groups: Sequence[Group], sampled_kl: float | None
    ) -> dict[str, float]:
        """Add this step's coefficient and divergence, then adapt the coefficient to a target."""
        algorithm = self.algorithm
        if not algorithm.has_kl:
            return metrics
        metrics = {**metrics, "policy/kl_coefficient": self.kl_coefficient}
        if algorithm.kl_reward_coefficient and sampled_kl is not None:
            metrics["policy/kl_reference"] = sampled_kl
        measured = metrics.get("policy/kl_reference")
        if algorithm.kl_target and measured is not None:
            self.kl_coefficient = adapted_coefficient(
                self.kl_coefficient,
                measured,
                algorithm.kl_target,
                algorithm.kl_horizon,
                sum(len(group.graded) for group in groups),
            )
        return metrics

    def _examples(self, groups: Sequence[Group], credits: Credits) -> list[Example]:
        """One share's weighted examples, less those whose gradient is exactly zero."""
        masked = self.config.mask_observations
        examples = policy_examples(groups, credits, self.algorithm, masked)
        # They have their weights by now: what is left out here stays in the denominators.
        examples = [e for e in examples if e.trained.any()]
        if not self.algorithm.has_terms_without_advantage:
            examples = [e for e in examples if e.advantage[e.trained].any()]
        if not self.config.mask_observations or self.algorithm.correction != BYPASS:
            examples = self._rescored(examples)
        # Last, since it ranks tokens by the old log-probabilities.
        return apply_token_filter(examples, self.algorithm)

    def _rescored(self, examples: Sequence[Example]) -> list[Example]:
        """Set the present log-probabilities: where no policy sampled the token, and, unless the
        correction bypasses it, as the policy that ratios are to."""
        scored = []
        for members, batch in self._micro_batches(examples):
            with torch.no_grad():
                logprobs, _ = self._logprobs(batch)
            # Of a batch that has no members here (`own_micro_batches`) nothing is known.
            counts = [int(member.trained.sum()) for member in members]
            known = logprobs[: sum(counts)].cpu()
            for member, own in zip(members, torch.split(known, counts), strict=True):
                now = np.full(len(member.ids), np.nan, np.float32)
                now[member.trained] = own.numpy()
                behaviour = np.where(member.sampled, member.behaviour_logprob, now)
                old = behaviour if self.algorithm.correction == BYPASS else now
                scored.append(replace(member, behaviour_logprob=behaviour, old_logprob=old))
        # Each rank has scored some, and all need all: the next pass deals them out anew.
        return [example for own in self._ranks.gather(scored) for example in own]

    def _update_once(
        self,
        examples: Sequence[Example],
        watch: UpdateMetrics,
        terms: Sequence[AuxiliaryTerm],
        other: Callable[[], str] | None,
    ) -> tuple[MetricSums, str]:
        """One optimizer update; a problem, if there is one, has left everything as it was."""
        own = MetricSums()
        algorithm = self.algorithm
        if algorithm.kl_coefficient:
            algorithm = replace(algorithm, kl_coefficient=self.kl_coefficient)
        problems = [self._add_policy_gradient(examples, algorithm, own, watch)]
        problems += [self._add_gradient(term, own) for term in terms]
        if other is not None:
            problems.append(other())
        # A problem of one rank's is everyone's: all move, or none does.
        gathered = self._ranks.gather((own, problems))
        sums = MetricSums.of_update([sums for sums, _ in gathered])
        problem = next((one for _, problems in gathered for one in problems if one), "")
        if problem:
            self.optimizer.clear()
            return sums, problem
        moved = self.optimizer.apply()
        sums.gradient_norm = norm = moved.gradient_norm
        sums.weights_changed = moved.weights_changed
        sums.weights_changed_rounded = moved.weights_changed_rounded
        if moved.skipped:
            everything = [*examples, *(example for term in terms for example in term.examples)]
            names = f"; from {everything[0].name} to {everything[-1].name}" if everything else ""
            return sums, f"the gradient's norm is {norm}, all losses being finite{names}"
        return sums, ""

    def _add_policy_gradient(
        self,
        examples: Sequence[Example],
        algorithm: Algorithm,
        sums: MetricSums,
        watch: UpdateMetrics,
    ) -> str:
        """Add the loss's gradient, by groups where its noise is measured; returns a problem."""
        problem = ""
        for part in by_group(examples) if watch.noise is not None else [examples]:
            for members, batch in self._micro_batches(part):
                tokens = self._forward(batch)
                result = policy_loss(tokens, algorithm)
                # A sum is finite only if all that is in it is.
                logprobs = tokens.logprob.detach() + tokens.behaviour_logprob + tokens.old_logprob
                problem = problem or batch.problem(result.losses.detach() + logprobs)
                loss = result.losses.sum()
                # After a problem too: each pass gathers weights, and other ranks wait for it.
                add_gradient(loss)
                if problem or not members:
                    continue
                sums.add_losses(result, len(batch.targets), loss.item())
                watch.see(members, tokens.logprob, tokens.entropy, result.weights)
                if watch.gap:
                    sums.add_gap((tokens.logprob - tokens.behaviour_logprob)[batch.sampled])
                    if batch.replay is not None:
                        sums.add_routing(batch.replay)
            if watch.noise is not None:
                watch.noise.add()
        return problem

    def _micro_batches(
        self, examples: Sequence[Example]
    ) -> Iterator[tuple[list[Example], MicroBatch]]:
        """The rank's examples in micro-batches, first those that are computed as trees."""
        most, rest = self.config.tokens_per_micro_batch, list(examples)
        if self.config.share_prefixes:
            width = base_model(self.model).config.get_text_config().hidden_size
            shared, rest = build_prefix_trees(examples, width, most)
            yield from own_tree_batches(self._ranks, shared, most, self.device)
        yield from self._packed(rest)

    def _packed(self, examples: Sequence[Example]) -> Iterator[tuple[list[Example], MicroBatch]]:
        most = self.config.tokens_per_micro_batch
        return own_micro_batches(self._ranks, examples, most, self.device)

    def _add_gradient(self, term: AuxiliaryTerm, sums: MetricSums) -> str:
        problem = ""
        for members, batch in self._packed(term.examples):
            logprobs, _ = self._logprobs(batch)
            problem = problem or batch.problem(logprobs.detach())
            add_gradient(-term.coefficient * (logprobs * batch.weight).sum())
            if members:
                sums.add_auxiliary(term.name, -logprobs.sum().item(), len(logprobs))
        return problem

    def _forward(self, batch: MicroBatch) -> TrainedTokens:
        logprob, entropy = self._logprobs(batch, self.algorithm.entropy_coefficient > 0)
        return TrainedTokens(
            logprob=logprob,
            behaviour_logprob=batch.behaviour_logprob,
            old_logprob=batch.old_logprob,
            advantage=batch.advantage,
            weight=batch.weight,
            sequence=batch.sequence,
            entropy=entropy,
            reference_logprob=self._reference_of(batch),
            loss_scale=batch.loss_scale,
            kl_penalty=batch.kl_penalty,
        )

    def _reference_of(self, batch: MicroBatch) -> Tensor | None:
        if not self.algorithm.kl_coefficient:
            return None
        with torch.no_grad(), self._as_reference() as compute:
            # The recorded experts are the policy's; the reference's routers choose for themselves.
            own = replace(batch, replay=None)
            found: Tensor = compute(self._scores, own, self.temperature, self.config)[0]
        return found

    @contextmanager
    def _as_reference(self) -> Iterator[Compute]:
        """The reference model, or the model without its adapters."""
        if self._compute_reference is not None:
            yield self._compute_reference
            return
        adapted: Any = self.model
        with adapted.disable_adapter():
            yield self.compute

    def _logprobs(self, batch: MicroBatch, entropy_gradient: bool = False) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = self.compute(
            self._scores, batch, self.temperature, self.config, entropy_gradient
        )
        return found

    def _check_reference(self) -> None:
        adapted = hasattr(self.model, "disable_adapter")
        if self.algorithm.has_reference and self.reference is None and not adapted:
            raise ConfigError(
                f"algorithm {self.algorithm.name}: the learner needs a reference model"
            )
        if self.reference is not None and not self.algorithm.has_reference:
            raise ConfigError("a reference model is loaded, but kl_coefficient is 0: set it")

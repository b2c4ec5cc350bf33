"""The test of a step's updates on the next step's episodes, which undoes them if they fail."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from turnwise.learning.credits import Credits, estimate
from turnwise.learning.policy import PolicyLearner
from turnwise.learning.scoring import sampled_logprobs
from turnwise.learning.signals.base import Signals, graded
from turnwise.learning.signals.makers import MakeSecond, SecondParts, SignalMaker
from turnwise.types import Group, Trajectory
from turnwise_algorithms.acceptance import inference_gap, tolerance_at
from turnwise_algorithms.signals.beside import Beside

TOLERANCE = ("tolerance", "last_tolerance", "tolerance_steps")


class Acceptance(Beside):
    """Weights and optimizer of before the last step's updates, to go back to (MIPU, arXiv
    2606.29526).

    The sampler with the updated weights has played the next step, so its episodes show what it
    makes of them. A step that undoes the last one makes no update: its episodes are of weights that
    are gone.
    """

    def __init__(self, own: PolicyLearner) -> None:
        super().__init__(own.model, own.algorithm, own.config, own.temperature)
        self.optimizer = own.optimizer
        self.step, self._tested, self._undone = 0, False, ""
        self.kept: dict[str, Any] = {}

    def measure(self, groups: Sequence[Group]) -> Signals:
        """Test the last step's updates, once a step, and keep what they left or what they are
        undone to. The metrics are absent where nothing is to be tested."""
        members = [member for member in graded(groups) if member.tokens.mask.any()]
        if self._tested or not members:
            return Signals()
        self._tested, self._undone, metrics = True, "", {}
        if self.kept and self.optimizer.updates > self.kept["optimizer"]["updates"]:
            numbers = (self.numbers[name] for name in TOLERANCE)
            gap, least = self._gap(groups, members), -tolerance_at(self.step, *numbers)
            if gap < least:
                self._undo()
                self._undone = f"the last update is undone: its gap {gap:.3g} is below {least:.3g}"
            metrics = {"acceptance/gap": gap, "acceptance/undone": float(bool(self._undone))}
        if not self._undone:
            self._keep()
        return Signals({}, metrics)

    def add_gradient(self, groups: Sequence[Group], credits: Credits) -> str:
        """Add none; the problem, after an update was undone, lets the learner skip this one."""
        return self._undone

    def update(
        self, groups: Sequence[Group], signals: Signals, credits: Credits
    ) -> dict[str, float]:
        self.step, self._tested = self.step + 1, False
        return {}

    def state(self) -> dict[str, Any]:
        return {"step": self.step, "kept": self.kept}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.step, self.kept = int(state["step"]), dict(state["kept"])

    def _gap(self, groups: Sequence[Group], members: Sequence[Trajectory]) -> float:
        credits = estimate(groups, Signals(), self.algorithm).advantages
        scores = sampled_logprobs(self.policy, members, self.learning, self.temperature)
        ratios, advantages = [], []
        for member, score in zip(members, scores, strict=True):
            known = ~np.isnan(score)  # a first token has no score
            ratios.append((score - member.tokens.logprob)[known])
            advantages.append(credits[member.id][known].astype(np.float64))
        return inference_gap(ratios, advantages)

    def _keep(self) -> None:
        state = copy.deepcopy(self.optimizer.state())  # which it goes on to change
        weights = zip(state["moments"], self.optimizer.parameters, strict=True)
        self.kept = {
            "weights": {name: weight.detach().clone() for name, weight in weights},
            "optimizer": state,
        }

    def _undo(self) -> None:
        with torch.no_grad():
            own = zip(self.kept["optimizer"]["moments"], self.optimizer.parameters, strict=True)
            for name, weight in own:
                weight.copy_(self.kept["weights"][name])
        # A reaction may have lowered the rate since.
        factor = {"learning_rate_factor": self.optimizer.learning_rate_factor}
        self.optimizer.load_state({**self.kept["optimizer"], **factor})


class AcceptanceMaker(SignalMaker):
    def second_model(self, given: SecondParts) -> MakeSecond:
        return Acceptance

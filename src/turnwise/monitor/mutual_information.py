"""The dependence of an agent's reasoning on its task: mutual information, estimated in a batch.

A policy can keep its entropy and still write the same for every task (template collapse, RAGEN-2,
arXiv 2604.06268); the entropy does not show that, the mutual information does. The reasoning Z of a
task X is what the policy sampled in its first turn, before any tool result:

    I(X; Z) = E[log p(z | x) - log mean_j p(z | x_j)]        H(Z | X) = -E[log p(z | x)]

over the tasks x_j of the sample, x among them, as in RAGEN-2. In nats for a whole first turn, not
for a token. With N tasks the estimate is at most log N.

It costs N² sequences of prompt and first turn without gradient.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnwise.learning.scoring import Score, Sequenced
from turnwise.tokens import Tokens
from turnwise.types import Group


class FirstTurn(NamedTuple):
    """A prompt and the agent's first turn after it."""

    prompt: NDArray[np.int64]
    ids: NDArray[np.int64]
    """Ids from the first token sampled in turn 0 to the last one."""
    sampled: NDArray[np.bool_]
    """False where a token was forced in between: it is read, but not scored."""


def mutual_information(scored: Score, groups: Sequence[Group], tasks: int) -> dict[str, float]:
    """`monitor/mutual_information` and `monitor/reasoning_entropy` of the model that scores, in
    nats.

    From the first graded episode of each of the first `tasks` groups whose prompts differ; nothing
    where there are fewer than two. The model must be the one that sampled, at the temperature of
    sampling.
    """
    turns = first_turns(groups)[:tasks]
    if len(turns) < 2:
        return {}
    pairs = [_joined(other.prompt, turn) for turn in turns for other in turns]
    found = zip(scored(pairs), pairs, strict=True)
    # float64: differences of such sums are logarithms of ratios, and may be near 0.
    scores = np.array([row[scored].sum(dtype=np.float64) for row, (_, scored) in found])
    information, entropy = from_scores(scores.reshape(len(turns), len(turns)))
    return {"monitor/mutual_information": information, "monitor/reasoning_entropy": entropy}


def first_turns(groups: Sequence[Group]) -> list[FirstTurn]:
    """The first turn of one graded episode for each different prompt, in the groups' order."""
    found: dict[bytes, FirstTurn] = {}
    for group in groups:
        turns = (_first_turn(member.tokens) for member in group.graded)
        turn = next((turn for turn in turns if turn is not None), None)
        if turn is not None:
            found.setdefault(turn.prompt.tobytes(), turn)
    return list(found.values())


def from_scores(scores: NDArray[np.float64]) -> tuple[float, float]:
    """I(X; Z) and H(Z | X) from log p(z_i | x_j), float64[N, N]."""
    own = np.diagonal(scores)
    marginal = np.logaddexp.reduce(scores, axis=1) - np.log(scores.shape[1])
    return float(np.mean(own - marginal)), float(-np.mean(own))


def _first_turn(tokens: Tokens) -> FirstTurn | None:
    """The first turn of an episode; None where nothing was sampled in it, or before it."""
    places = np.flatnonzero(tokens.mask & (tokens.turn == 0))
    if not len(places) or places[0] == 0:
        return None
    first, end = int(places[0]), int(places[-1]) + 1
    return FirstTurn(tokens.ids[:first], tokens.ids[first:end], tokens.mask[first:end])


def _joined(prompt: NDArray[np.int64], turn: FirstTurn) -> Sequenced:
    """A turn after a prompt, and which of the tokens are scored."""
    scored = np.concatenate([np.zeros(len(prompt), np.bool_), turn.sampled])
    return np.concatenate([prompt, turn.ids]), scored

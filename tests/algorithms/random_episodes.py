"""Random episodes with masks in odd places, for property tests."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from turnwise.algorithms.estimators import EstimatorInput


def random_episode(generator: np.random.Generator, turns: int, tokens: int = 12) -> EstimatorInput:
    """Turns of random lengths; sampled and other tokens mixed; each turn samples something."""
    turn = np.sort(np.concatenate([np.arange(turns), generator.integers(0, turns, tokens)]))
    mask = generator.random(len(turn)) < 0.5
    mask[[np.flatnonzero(turn == number)[0] for number in range(turns)]] = True
    return EstimatorInput(
        shaped_reward=float(generator.normal()),
        turn=turn.astype(np.int32),
        mask=mask,
        turn_rewards=generator.normal(size=turns) * (generator.random(turns) < 0.6),
        values=generator.normal(size=len(turn)),
        teacher_logprobs=-generator.random(len(turn)),
        states=[f"state {number}" for number in generator.integers(0, 3, turns)],
        baseline=float(generator.normal()),
        parts={"form": float(generator.normal()), "content": float(generator.normal())},
        information_gains=generator.normal(size=turns - 1),
        turn_values=generator.normal(size=turns + 1),
        logprobs=-generator.exponential(size=len(turn)),
        hindsight_logprobs=-generator.exponential(size=len(turn)),
        score_norms=2 * generator.random(len(turn)),
    )


@st.composite
def groups(draw: st.DrawFn, sizes: tuple[int, int] = (1, 5)) -> list[EstimatorInput]:
    """Episodes with unequal numbers of turns, none of them a branch."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    turns = draw(st.lists(st.integers(1, 4), min_size=sizes[0], max_size=sizes[1]))
    episodes = [random_episode(generator, count) for count in turns]
    return [replace(episode, parent=index) for index, episode in enumerate(episodes)]


@st.composite
def forests(draw: st.DrawFn) -> list[EstimatorInput]:
    """Trees of episodes: a branch begins at one of its parent's own turns and
    has turns of its own."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    group: list[EstimatorInput] = []
    for index in range(draw(st.integers(1, 7))):
        parent = int(generator.integers(0, index + 1))
        first = 0
        if parent < index:
            first = int(generator.integers(group[parent].first_turn, group[parent].turns))
        made = random_episode(generator, first + int(generator.integers(1, 4)))
        mask = made.mask & (made.turn >= first)
        group.append(replace(made, mask=mask, parent=parent, first_turn=first))
    return group

"""Random episodes with masks in odd places, for property tests."""

import numpy as np
from hypothesis import strategies as st

from turnwise.algorithms.episodes import Episode


def random_episode(generator: np.random.Generator, turns: int, tokens: int = 12) -> Episode:
    """Turns of random lengths; sampled and other tokens mixed; each turn samples something."""
    turn = np.sort(np.concatenate([np.arange(turns), generator.integers(0, turns, tokens)]))
    mask = generator.random(len(turn)) < 0.5
    mask[[np.flatnonzero(turn == number)[0] for number in range(turns)]] = True
    return Episode(
        reward=float(generator.normal()),
        turn=turn.astype(np.int32),
        mask=mask,
        turn_rewards=generator.normal(size=turns) * (generator.random(turns) < 0.6),
        values=generator.normal(size=len(turn)),
        states=[f"state {number}" for number in generator.integers(0, 3, turns)],
    )


@st.composite
def groups(draw: st.DrawFn, sizes: tuple[int, int] = (1, 5)) -> list[Episode]:
    """Episodes with unequal numbers of turns."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    turns = draw(st.lists(st.integers(1, 4), min_size=sizes[0], max_size=sizes[1]))
    return [random_episode(generator, count) for count in turns]

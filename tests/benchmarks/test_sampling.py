"""What `sampling.py` compares, as far as it needs no peer."""

import asyncio

import pytest
from engine_measurements import random_model
from sampling import bytes_of_step, check_lengths
from sampling_here import KINDS

PROMPTS = [[5, 6, 7], [8, 9, 10]]


@pytest.mark.parametrize("kind", ["turnwise", "generate"])
def test_a_round_samples_what_was_asked_for(kind: str) -> None:
    play, _ = KINDS[kind](random_model("1M"), PROMPTS, 4)

    async def rounds() -> list[list[int]]:
        return [await play(), await play()]

    assert asyncio.run(rounds()) == [[4, 4], [4, 4]]


def test_fewer_tokens_are_an_error() -> None:
    check_lengths({"it": [{"lengths": [128] * 64}]})
    with pytest.raises(SystemExit, match="it sampled"):
        check_lengths({"it": [{"lengths": [128] * 63 + [127]}]})


def test_a_step_reads_weights_and_caches() -> None:
    model = random_model("1M")
    cached = 64 * (32 + 64) * 4 * 2 * 128  # sequences, history, layers, keys and values
    assert bytes_of_step(model) == 4 * (model.num_parameters() + cached)

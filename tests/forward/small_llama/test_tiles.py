"""All layers in one call, in bfloat16: nearer to float32 than transformers, row by row the same."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from tests.forward.shapes import SHAPES, distance, follow, off, shaped
from turnwise.forward.cache import PADDING, CacheExtent
from turnwise.forward.kernels.compiler import switched_on
from turnwise.forward.rounding import allowed
from turnwise.forward.runner import Runner
from turnwise.forward.small_llama.tiles import BLOCK, _blocks

pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None
    or not switched_on()
    or not Path("/proc/cpuinfo").exists()
    or "amx_bf16" not in Path("/proc/cpuinfo").read_text(),
    reason="kernels are compiled by gcc, on Linux, for processors with tiles of bfloat16",
)
STEPS = 32
WIDTHS = {"hidden_size": 64, "intermediate_size": 96, "max_position_embeddings": 512}


def wide(shape: str = "qwen3", **options: Any) -> PreTrainedModel:
    config_class, model_class, own = SHAPES[shape]
    return shaped(config_class, model_class, **(WIDTHS | own | {"head_dim": 32} | options))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize("autocast", [True, False])
def test_logits_round_as_bfloat16_may(shape: str, size: int, autocast: bool) -> None:
    model = wide(shape, head_dim=size)
    if not autocast:
        model = model.to(torch.bfloat16)
    runner = Runner(model, tokens=160, longest=40, autocast=autocast)
    assert runner.tiled
    assert 0 < off(follow(runner, STEPS), model, torch.bfloat16) <= 1


@pytest.mark.parametrize("shape", ["llama", "qwen3 with a window"])
def test_texts_longer_than_a_block(shape: str) -> None:
    """Three rows of one prefill: one takes several blocks, one shares a block with another."""
    exact = wide(shape)
    runner = Runner(exact, tokens=1200, longest=400, autocast=True)
    texts = [(np.arange(count) * 7 % 293 + 1).tolist() for count in (2 * BLOCK + 30, 9, 14)]
    found = list(zip(texts, prefilled(runner, texts), strict=True))
    assert 0 < off(found, exact, torch.bfloat16) <= 1
    again = prefilled(runner, texts[:1])  # a long one alone goes through the other forward pass
    assert 0 < off([(texts[0], again[0])], exact, torch.bfloat16) <= 1


def test_rows_depend_neither_on_threads_nor_on_neighbours() -> None:
    runner = Runner(wide(), tokens=1200, longest=40, autocast=True)
    texts = [list(range(1 + row, 9 + row + row % 3)) for row in range(30)]
    together = prefilled(runner, texts)
    torch.set_num_threads(2)
    try:
        apart = prefilled(runner, texts)
    finally:
        torch.set_num_threads(1)
    alone = [prefilled(runner, [text])[0] for text in texts]
    logits = float(max(row.abs().max() for row in together))
    rounding = allowed(torch.float32, WIDTHS["hidden_size"], logits)
    for first, second, third in zip(together, apart, alone, strict=True):
        assert torch.equal(first, second)
        assert torch.allclose(first, third, rtol=0, atol=rounding)  # but for the output layer


@pytest.mark.parametrize("part", ["q_proj", "k_proj", "v_proj", "q_norm", "k_norm"])
def test_what_is_no_number_stays_so(part: str) -> None:
    """By which sampling finds out that the weights have diverged."""
    model = wide()
    runner = Runner(model, tokens=160, longest=40, autocast=True)
    follow(runner, 1)
    with torch.no_grad():
        getattr(model.model.layers[0].self_attn, part).weight.fill_(float("nan"))
    runner.refresh()
    for count in (1, 5):
        ids, places = np.full((1, count), 5), np.arange(7, 7 + count)[None]
        assert runner.forward([CacheExtent(0, 40)], ids, places).isnan().all()


def test_new_weights_are_seen() -> None:
    model = wide()
    runner = Runner(model, tokens=160, longest=40, autocast=True)
    before = follow(runner, 4)
    with torch.no_grad():
        for weights in model.parameters():
            weights *= 1.1
    same = follow(runner, 4)
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(before, same, strict=True))
    runner.refresh()
    assert distance(follow(runner, 4), model) < distance(before, model) / 4


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("counts", [[1], [1] * 64, [40] * 64, [500], [3, 200, 5, 96, 97, 1]])
def test_blocks_have_every_token_once_and_texts_stay_in_one_chain(
    counts: list[int], threads: int
) -> None:
    blocks, chains = (bounds.tolist() for bounds in _blocks(counts, threads))
    assert (blocks[0], blocks[-1], chains[0], chains[-1]) == (0, sum(counts), 0, len(blocks) - 1)
    assert all(0 < size <= BLOCK for size in np.diff(blocks))
    assert all(np.diff(chains) > 0)
    if len(set(counts)) == 1:
        assert len(chains) - 1 >= min(threads, len(counts), sum(counts) // 16)
    ends = set(np.cumsum(counts).tolist())
    assert {blocks[chain] for chain in chains[1:]} <= ends


def prefilled(runner: Runner, texts: list[list[int]]) -> list[torch.Tensor]:
    """Log-probabilities after each text, all put in at once."""
    width, room = max(map(len, texts)), 400 if len(texts) < 4 else 40
    ids = np.zeros((len(texts), width), np.int64)
    places = np.full((len(texts), width), PADDING, np.int64)
    for row, text in enumerate(texts):
        ids[row, width - len(text) :] = text
        places[row, width - len(text) :] = range(len(text))
    runs = [CacheExtent(room * row, room) for row in range(len(texts))]
    return list(runner.forward(runs, ids, places).double().log_softmax(-1))

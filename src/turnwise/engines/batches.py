"""What one forward pass computes: arrays of inputs for a prefill, or for one token of each row.

Not here: tensors and the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from turnwise.engines.cache import PADDING
from turnwise.engines.sessions import Request

PREFILL_TOKENS = 4096
"""Inputs of one forward pass, padding included; longer prompts take several passes."""
SLACK = 32
"""A row joins a prefill if at least half of it is tokens, or no more than this is padding."""


@dataclass(frozen=True)
class Batch:
    """Inputs of n cache rows, right-aligned; idle rows and left sides are PADDING."""

    rows: slice | list[int]
    ids: np.ndarray
    """int64[n, inputs]"""
    positions: np.ndarray
    """int64[n, inputs], columns in the cache."""
    requests: list[Request]
    counts: list[int]
    """How many tokens of each request's history the pass adds to the cache."""
    computed: int
    """Tokens put through the model."""
    sampled: list[Request]
    """Requests whose next token follows from this pass."""
    picks: np.ndarray | None
    """int64, the row of the batch of each in `sampled`; None when they are all rows in order."""
    copies: list[tuple[int, list[int], slice]] = field(default_factory=list)
    """(cache row, cache rows, columns): after the pass the one gives the others what is new."""


def decode_batch(running: Sequence[Request]) -> Batch:
    """The last token of every request, over a contiguous prefix of the cache rows."""
    requests = sorted(running, key=_row)
    rows = np.array([_row(request) for request in requests])
    count = int(rows[-1]) + 1
    ids = np.zeros((count, 1), np.int64)
    positions = np.full((count, 1), PADDING, np.int64)
    ids[rows, 0] = [request.tokens[-1] for request in requests]
    positions[rows, 0] = [request.session.length for request in requests]
    picks = None if len(requests) == count else rows
    ones = [1] * len(requests)
    return Batch(slice(0, count), ids, positions, requests, ones, len(requests), requests, picks)


def prefill_batch(fresh: Sequence[Request]) -> Batch:
    """What is not yet cached of some requests: the one with most to do, and similar ones.

    Of requests with one history, as those of a group have at first and often for longer, the first
    is computed and the others get its keys, values and logits.
    """
    twins = _twins(fresh)
    chosen = _similar(list(twins))
    width = min(_missing(chosen[0]), PREFILL_TOKENS)
    requests = sorted(chosen, key=_row)
    rows = [_row(request) for request in requests]
    ids = np.zeros((len(rows), width), np.int64)
    positions = np.full((len(rows), width), PADDING, np.int64)
    counts = []
    for index, request in enumerate(requests):
        start = request.session.length
        count = min(_missing(request), width)
        ids[index, width - count :] = request.prompt[start : start + count]
        positions[index, width - count :] = np.arange(start, start + count)
        counts.append(count)
    whole = [index for index, request in enumerate(requests) if counts[index] == _missing(request)]
    batch = Batch(
        _contiguous(rows),
        ids,
        positions,
        requests,
        counts,
        sum(counts),
        [requests[index] for index in whole],
        None if len(whole) == len(rows) else np.array(whole, np.int64),
    )
    return _with_twins(batch, whole, twins)


def _twins(fresh: Sequence[Request]) -> dict[Request, list[Request]]:
    """The requests to compute, each with those that have the same history and as much of it cached.

    Only what one pass computes whole is shared.
    """
    first: dict[tuple[int, bytes], Request] = {}
    twins: dict[Request, list[Request]] = {}
    for request in fresh:
        key = request.session.length, request.prompt.tobytes()
        if _missing(request) > PREFILL_TOKENS:
            twins[request] = []
        elif key in first:
            twins[first[key]].append(request)
        else:
            first[key] = request
            twins[request] = []
    return twins


def _with_twins(
    batch: Batch, whole: Sequence[int], twins: Mapping[Request, Sequence[Request]]
) -> Batch:
    """With the requests that those at `whole` are computed for besides."""
    requests, counts, sampled = list(batch.requests), list(batch.counts), list(batch.sampled)
    picks, copies = list(whole), []
    for index in whole:
        if others := twins[batch.requests[index]]:
            requests += others
            sampled += others
            counts += [batch.counts[index]] * len(others)
            picks += [index] * len(others)
            request = batch.requests[index]
            new = slice(request.session.length, len(request.prompt))
            copies.append((_row(request), [_row(other) for other in others], new))
    if not copies:
        return batch
    return replace(
        batch,
        requests=requests,
        counts=counts,
        sampled=sampled,
        picks=np.array(picks, np.int64),
        copies=copies,
    )


def _similar(fresh: Sequence[Request]) -> list[Request]:
    ordered = sorted(fresh, key=_missing, reverse=True)
    width = min(_missing(ordered[0]), PREFILL_TOKENS)
    most = max(1, PREFILL_TOKENS // width)
    least = min(width // 2, width - SLACK)
    return [request for request in ordered[:most] if _missing(request) >= least]


def _contiguous(rows: list[int]) -> slice | list[int]:
    """A slice where the (ascending) rows allow it: it is read without copying."""
    if rows[-1] - rows[0] + 1 == len(rows):
        return slice(rows[0], rows[-1] + 1)
    return rows


def _missing(request: Request) -> int:
    return len(request.prompt) - request.session.length


def _row(request: Request) -> int:
    if request.session.row is None:
        raise RuntimeError(f"session {request.session.name!r} runs without a cache row")
    return request.session.row

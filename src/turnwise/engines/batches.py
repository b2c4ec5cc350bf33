"""The inputs of one forward pass: arrays for a prefill, or one token of each request.

Beginnings that histories have in common, as in a group or after a branch, are computed for one and
copied for the others; what is wholly the same, logits included, is shared within a pass.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from turnwise.engines.sessions import Request, Session
from turnwise.forward.cache import PADDING, CacheExtent
from turnwise.forward.images import ImageInputs, ImageReader, joined

PREFILL_TOKENS = 4096
"""Inputs of one forward pass, padding included; longer prompts take several passes."""
SLACK = 32
"""A row joins a prefill if at least half of it is tokens, or no more than this is padding."""


@dataclass(frozen=True)
class Batch:
    """Inputs of n rows, each one a run of the cache; right-aligned, left sides are PADDING."""

    runs: list[CacheExtent]
    ids: np.ndarray
    """int64[n, inputs]"""
    positions: np.ndarray
    """int64[n, inputs], places in the runs."""
    requests: list[Request]
    counts: list[int]
    """Tokens of each request's history that the pass adds to the cache."""
    computed: int
    """Tokens put through the model."""
    sampled: list[Request]
    """Requests whose next token follows from this pass."""
    picks: np.ndarray | None
    """int64, the row of the batch of each in `sampled`; None when they are all rows in order."""
    copies: list[tuple[CacheExtent, list[CacheExtent], slice]] = field(default_factory=list)
    """(run, runs, columns): after the pass the one gives the others what is new."""


def next_batch(running: Sequence[Request]) -> Batch:
    """A prefill when there is one to do, else a token of every request."""
    fresh = [request for request in running if request.missing > 1]
    return prefill_batch(computed_first(fresh)) if fresh else decode_batch(running)


def decode_batch(running: Sequence[Request]) -> Batch:
    """The last token of every request."""
    # In the order of their runs: neighbours are read as one span (`forward/cache.py`).
    requests = sorted(running, key=_start)
    places = np.array([request.known - 1 for request in requests])[:, None]
    last = [request.last for request in requests]
    ids = np.array(last, np.int64)[:, None]
    runs, ones = [request.run for request in requests], [1] * len(requests)
    return Batch(runs, ids, places, requests, ones, len(requests), requests, None)


def shared_beginning(requests: Sequence[Request]) -> int:
    """The number of cached tokens with which all histories begin."""
    cached = [request.session.history[: request.session.length].tobytes() for request in requests]
    # All others lie between the least and the greatest, so they begin with what these two share.
    least, greatest = (np.frombuffer(one, np.int64) for one in (min(cached), max(cached)))
    length = min(len(least), len(greatest))
    return _alike(least[:length], greatest[:length])


def _alike(one: np.ndarray, other: np.ndarray) -> int:
    """The number of first tokens that two histories of one length have in common."""
    different = np.flatnonzero(one != other)
    return int(different[0]) if len(different) else len(one)


def prefill_batch(fresh: Sequence[Request]) -> Batch:
    """Batch the uncached tokens of the request with most to do, and of similar ones. Of requests
    with one history, as in a group, one is computed; the others get its keys, values, logits."""
    twins = _twins(fresh)
    chosen = _similar(list(twins))
    width = min(chosen[0].missing, PREFILL_TOKENS)
    requests = sorted(chosen, key=_start)
    ids = np.zeros((len(requests), width), np.int64)
    positions = np.full((len(requests), width), PADDING, np.int64)
    counts = []
    for index, request in enumerate(requests):
        start = request.session.length
        count = min(request.missing, width)
        # On the right, so that the last input of each row is its last token: its logits are wanted.
        ids[index, width - count :] = request.session.history[start : start + count]
        positions[index, width - count :] = np.arange(start, start + count)
        counts.append(count)
    # Only these have a next token now. The others go on where they are in the next pass.
    whole = [index for index, request in enumerate(requests) if counts[index] == request.missing]
    batch = Batch(
        [request.run for request in requests],
        ids,
        positions,
        requests,
        counts,
        sum(counts),
        [requests[index] for index in whole],
        None if len(whole) == len(requests) else np.array(whole, np.int64),
    )
    return _with_twins(batch, whole, twins)


def _twins(fresh: Sequence[Request]) -> dict[Request, list[Request]]:
    """The requests to compute, each with those of the same history and as much of it cached."""
    first: dict[tuple[int, bytes], Request] = {}
    twins: dict[Request, list[Request]] = {}
    for request in fresh:
        known = request.session.history[: request.known]
        key = request.session.length, known.tobytes()
        # It takes several passes, of which only the last gives the logits that twins would share.
        if request.missing > PREFILL_TOKENS:
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
    """Add to a batch the requests with the same history as those at `whole`."""
    requests, counts, sampled = list(batch.requests), list(batch.counts), list(batch.sampled)
    picks, copies = list(whole), []
    for index in whole:
        if others := twins[batch.requests[index]]:
            requests += others
            sampled += others
            counts += [batch.counts[index]] * len(others)
            picks += [index] * len(others)
            request = batch.requests[index]
            new = slice(request.session.length, request.known)
            copies.append((request.run, [other.run for other in others], new))
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
    ordered = sorted(fresh, key=lambda request: request.missing, reverse=True)
    width = min(ordered[0].missing, PREFILL_TOKENS)
    most = max(1, PREFILL_TOKENS // width)
    least = min(width // 2, width - SLACK)
    # The longest sets the width: a request that is much shorter waits for others of its length.
    return [request for request in ordered[:most] if request.missing >= least]


def _start(request: Request) -> int:
    return request.run.start


def image_inputs(batch: Batch, reader: ImageReader) -> tuple[Batch, ImageInputs | None]:
    """The batch in the model's vocabulary, and its placeholders; None where all are plain words."""
    # Twins stand behind the requests that have a row.
    rows = [request.session.images for request in batch.requests[: len(batch.runs)]]
    words = all(images is None for images in rows)
    # Marks of images are below 0; with axes the words behind an image have other positions too.
    if words or (batch.ids.min() >= 0 and not reader.family.axes):
        return batch, None
    # Padding has the position -1, which would count from the end.
    ids, seen = batch.ids.copy(), np.maximum(batch.positions, 0)
    places, found = np.zeros(ids.shape, np.bool_), []
    axes = np.tile(seen, (3, 1, 1)) if reader.family.axes else None
    for row, images in enumerate(rows):
        if images is None:
            continue
        known = (batch.positions[row] != PADDING) & (seen[row] < len(images.ids))
        ids[row, known] = images.ids[seen[row, known]]
        if axes is not None:
            axes[:, row] = images.positions(seen[row])
        if known.any():
            places[row, known] = np.isin(seen[row, known], images.places)
            first, last = int(seen[row, known][0]), int(seen[row, known][-1])
            found += images.features(reader, first, last + 1)
    return replace(batch, ids=ids), joined(places, found, axes)


WORTH = 16
"""Tokens that a copy must save: so many take about as long to compute as to copy."""


def find_donor(request: Request, seated: Iterable[Session]) -> tuple[Session, int] | None:
    """The session that has most of what the request lacks, and how many tokens, if any gain."""
    best, longest = None, request.session.length + WORTH - 1
    for session in seated:
        cached = min(session.length, request.known - 1)
        recorded = request.session.experts is None or session.experts is not None
        if cached > longest and recorded:
            same = _same(request, session, cached)
            if same > longest:
                best, longest = session, same
    return None if best is None else (best, longest)


def computed_first(fresh: Sequence[Request]) -> list[Request]:
    """Requests to prefill now: one that begins like one before it, as much of both being cached,
    waits for a copy of that, unless it is the same."""
    leaders: dict[tuple[int, bytes], Request] = {}
    first = []
    for request in fresh:
        length = request.session.length
        enough = length + WORTH
        beginning = length, request.session.history[:enough].tobytes()
        if request.known <= enough or _is_same(leaders.setdefault(beginning, request), request):
            first.append(request)
    return first


def _is_same(request: Request, other: Request) -> bool:
    one, two = (r.session.history[: r.known] for r in (request, other))
    return np.array_equal(one, two)


def _same(request: Request, session: Session, length: int) -> int:
    """Number of common first tokens, `length` at most; 0 if too few to copy."""
    own, other, start = request.session.history, session.history, request.session.length
    # Two tokens tell most histories apart, before they are compared as a whole.
    for place in (start, start + WORTH - 1):
        if own[place] != other[place]:
            return 0
    return _alike(own[:length], other[:length])

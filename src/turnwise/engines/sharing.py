"""Beginnings that histories have in common: computed for one, copied for the others.

The trajectories of a group begin with one prompt, those that branch with all that was said before.
What is wholly the same, logits included, is shared within a pass (`batches.py`).
"""

from collections.abc import Iterable, Sequence

import numpy as np

from turnwise.engines.sessions import Request, Session

WORTH = 16
"""Tokens that a copy must save: so many take about as long to compute as to copy."""


def find_donor(request: Request, seated: Iterable[Session]) -> tuple[Session, int] | None:
    """The session in whose run most of what the request lacks is cached, and how many tokens are
    the same there; None where it saves nothing."""
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
    for place in (start, start + WORTH - 1):
        if own[place] != other[place]:
            return 0
    different = np.flatnonzero(own[:length] != other[:length])
    return int(different[0]) if len(different) else length

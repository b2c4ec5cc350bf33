"""What has to be the same for all contenders of `whole_step.py`. Standard library alone."""

import hashlib
import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any


def work_of(trajectories: Iterable[tuple[Sequence[int], Sequence[bool]]]) -> dict[str, Any]:
    """Counts, and a digest that is equal only if prompts, tool results and the length of each turn
    are. A trajectory is its tokens, and which of them were sampled: those a loss is over."""
    found = []
    turns, sampled, tokens = 0, 0, 0
    for ids, mask in trajectories:
        parts: list[Any] = []
        paired = zip(ids, mask, strict=True)
        for is_sampled, part in itertools.groupby(paired, key=lambda pair: bool(pair[1])):
            own = [token for token, _ in part]
            parts.append(len(own) if is_sampled else own)
            turns += is_sampled
            sampled += len(own) * is_sampled
        tokens += len(ids)
        found.append(json.dumps(parts))
    digest = hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest()
    return {
        "trajectories": len(found),
        "turns": turns,
        "sampled": sampled,
        "tokens": tokens,
        "digest": digest,
    }

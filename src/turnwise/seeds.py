"""Seeds by name: every random stream is derived from what it is for, never from a counter.

There is no global random state in turnwise. `derive(run_seed, "train", task.id, 3, "sampling")` is
the same number in every process, on every machine, whatever ran before, and two different tuples
share no stream (sha256), which `seed + index` cannot promise.
"""

import hashlib

Part = str | int


def derive(*parts: Part) -> int:
    """A 63-bit seed from an ordered tuple of names, e.g. (run, split, task, episode, component).

    >>> derive(0, "train", "t1", 0, "sampling") == derive(0, "train", "t1", 0, "sampling")
    True
    >>> derive(0, "train", "t1", 1) == derive(1, "train", "t1", 0)
    False
    """
    # Kinds and a separator: ("a", 1), ("a", "1") and ("a1",) are different seeds.
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    # 63 bits, so that a seed fits into an int64, such as a column of Parquet.
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1

"""Speed of a verifier: seconds of a verdict, and whether several are made at once."""

import asyncio
import os
import time
from collections.abc import Awaitable, Iterator, Sequence
from statistics import median, quantiles

from turnwise.storage.audits import Finding
from turnwise.times import Doing
from turnwise.types import Trajectory
from turnwise_trust.audit.plays import AT_ONCE, Held, compared, scripts
from turnwise_trust.audit.subject import Subject

SLOWEST = 10.0
"""Seconds of a verdict, in the median, beyond which a policy waits for its verifier."""
LOOKED = 0.005
"""Seconds between two looks at the event loop."""
TRIVIAL = 0.002
"""Seconds of a verdict below which switching between episodes is all that could be timed."""
SHORT = 0.1
"""Seconds of a verdict below which it does not matter that others wait for it."""


def speed(subject: Subject) -> Iterator[Finding]:
    """Time verdicts, one after the other and at once."""
    yield _fast([*subject.of_oracle, *subject.of_random, *subject.idle])
    yield asyncio.run(_scalable(subject))


def _fast(known: Sequence[Trajectory]) -> Finding:
    check = "fast: seconds of a verdict"
    seconds = sorted(sum(_grading(one)) for one in known if one.verdict is not None)
    if not seconds:
        return Finding(check, note="no episode got a verdict")
    middle = median(seconds)
    late = quantiles(seconds, n=20)[-1] if len(seconds) > 1 else middle
    passed = middle <= SLOWEST
    return Finding(
        check,
        middle,
        bound=SLOWEST,
        passed=passed,
        note=f"median of {len(seconds)} verdicts; 95% take at most {late:.3g} s",
        remedy="Judge with less, or remember what is judged again and again.",
    )


def _grading(episode: Trajectory) -> list[float]:
    spans = episode.times.spans if episode.times is not None else ()
    return [one.end - one.start for one in spans if one.doing is Doing.GRADING]


async def _scalable(subject: Subject) -> Finding:
    check = f"scalable: {AT_ONCE} verdicts at once"
    subject.begin()
    chosen = scripts(subject, compared(subject, 2))[:AT_ONCE]
    held = [Held(**one.planned(subject.environment, subject.seed)) for one in chosen]
    try:
        for one in held:
            await one.run()
        ready = [one for one in held if (await one.judge()).verdict is not None]
        if len(ready) < 2:
            return Finding(check, note="fewer than two episodes got a verdict")
        start = time.monotonic()
        alone = [await one.judge() for one in ready]
        apart = time.monotonic() - start
        together, blocked = await _watched(asyncio.gather(*(one.judge() for one in ready)))
    finally:
        for one in held:
            await one.release()
    each = apart / len(alone)
    if each < TRIVIAL:
        return Finding(check, passed=True, note=f"a verdict takes {each:.2g} s: it keeps nobody up")
    passed = each < SHORT or blocked < each / 2 or apart > 2 * together
    return Finding(
        check,
        apart / together,
        passed=passed,
        note=f"times as fast as one after the other, {len(alone)} verdicts of {each:.3g} s each on "
        f"{os.cpu_count()} cores; the longest time that nothing else could run: {blocked:.3g} s",
        remedy="Have verify() await, or work in asyncio.to_thread().",
    )


async def _watched(work: Awaitable[object]) -> tuple[float, float]:
    """Seconds that the work took, and the longest in which the event loop did nothing else."""
    start = last = time.monotonic()
    longest, pending = 0.0, asyncio.ensure_future(work)
    while not pending.done():
        await asyncio.wait([pending], timeout=LOOKED)
        now = time.monotonic()
        longest, last = max(longest, now - last - LOOKED), now
    await pending
    return time.monotonic() - start, max(0.0, longest)

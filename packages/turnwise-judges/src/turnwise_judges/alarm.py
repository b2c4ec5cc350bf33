"""The warning of a step in which a judge's replies became unreadable: its episodes have no grade,
where a bad one was due."""

from collections.abc import Iterable, Mapping

from turnwise.evaluation.intervals import wilson
from turnwise_judges.asking import Counts


class UnreadableReplies:
    """Warns, once, of a step in which the model answered more requests in no usable form than
    before: where the 95% intervals (Wilson's) of the step and of all before do not overlap."""

    def __init__(self, counts: Counts, timing: Iterable[Mapping[str, float]] = ()) -> None:
        """`counts` are this process's; `timing` are lines of an interrupted run's steps before."""
        self._counts, self._said = counts, False
        self._unreadable, self._requests = _judged(timing)
        self._counted = (0, 0)

    def __call__(self, step: int) -> str:
        """Compare a step with those before, and give the warning, or nothing."""
        before, requests_before = self._unreadable, self._requests
        found = self._counts.unreadable - self._counted[0]
        requests = self._counts.requests - self._counted[1]
        self._counted = self._counts.unreadable, self._counts.requests
        self._unreadable, self._requests = before + found, requests_before + requests
        if self._said or not requests or not requests_before:
            return ""
        self._said = wilson(found, requests)[0] > wilson(before, requests_before)[1]
        if not self._said:
            return ""
        return (
            f"in RL step {step} the judge's model answered {found} of {requests} requests in no "
            f"usable form, {before} of {requests_before} before: see whether episodes make it do "
            f"so (turnwise show RUN --step {step}; docs/how-to/judges.md)"
        )


def _judged(timing: Iterable[Mapping[str, float]]) -> tuple[int, int]:
    """Unreadable requests, and all, of the steps before. Each process counts from 0."""
    unreadable = requests = 0
    last = (0, 0)
    for line in timing:
        now = int(line.get("judge/unreadable", 0)), int(line.get("judge/requests", 0))
        if now[1] < last[1]:
            last = (0, 0)
        unreadable, requests = unreadable + now[0] - last[0], requests + now[1] - last[1]
        last = now
    return unreadable, requests

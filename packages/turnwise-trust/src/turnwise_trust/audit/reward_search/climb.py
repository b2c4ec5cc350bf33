"""Hill-climbing over scripts by random edits, on the verifier alone: one script for all tasks."""

from collections.abc import Callable

from turnwise_trust.audit.attempts import Script, scripted
from turnwise_trust.audit.reward_search.edits import edited
from turnwise_trust.audit.reward_search.ground import Ground, Score

LEADERS = 6
"""Scripts that are kept to be edited, of each aim."""
Aim = Callable[[Score], tuple[float, float]]
AIMS: dict[str, Aim] = {
    "success": lambda score: (score.success, score.reward),
    "unearned": lambda score: (score.unearned, score.reward),
}
"""Numbers that the search is after, each with what decides between equals."""


def climb(ground: Ground, episodes: int) -> dict[str, Script]:
    """The best script for each aim, as the seen tasks say."""
    found: set[str] = set()
    leaders: dict[str, list[tuple[Script, Score]]] = {aim: [] for aim in AIMS}
    least = ground.left - episodes
    pool = list(ground.scripts())

    def tried(script: Script) -> None:
        if repr(script) not in found:
            found.add(repr(script))
            own = script, ground.tried(scripted(script))
            for aim, best in leaders.items():
                # The first of equals stays ahead.
                best[:] = sorted([*best, own], key=_rank(AIMS[aim]), reverse=True)[:LEADERS]

    for script in pool:
        if ground.left > least and ground.open:
            tried(script)
    attempts = 0
    while ground.left > least and ground.open and attempts < episodes:
        attempts += 1
        aim = ground.stream.choice(sorted(AIMS))
        script, _ = ground.stream.choice(leaders[aim])
        tried(edited(script, pool, ground.stream))
    scripts = {aim: [script for script, _ in best] for aim, best in leaders.items()}
    return {aim: _best(ground, scripts[aim], AIMS[aim]) for aim in AIMS}


def _rank(aim: Aim) -> Callable[[tuple[Script, Score]], tuple[float, float, int]]:
    """Shorter scripts first of those that are as good."""
    return lambda one: (*aim(one[1]), -len(one[0]))


def _best(ground: Ground, leaders: list[Script], aim: Aim) -> Script:
    """The best of the leaders on all seen tasks; of equals, the first."""
    scores = {
        place: aim(ground.score(ground.play(scripted(script), ground.seen)))
        for place, script in enumerate(leaders)
    }
    best = max(scores, key=lambda place: (scores[place], -place), default=None)
    return () if best is None else leaders[best]

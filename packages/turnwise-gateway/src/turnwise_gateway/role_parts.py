"""The parts that the roles of an agent have in its episodes, each a trajectory by itself.

A role's part has its contexts, its turns and its reward, and is compared with those of the same
role in other episodes of the task.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from turnwise.tokens import KeptTokens, Tokens
from turnwise.types import Group, Trajectory, Verdict


def by_role(groups: Sequence[Group]) -> list[Group]:
    """A group "GROUP@ROLE" for each role of each group, in the order of first speech. Episodes in
    which a role is silent have no part in it; groups of no role stay as they are."""
    parted: list[Group] = []
    for group in groups:
        roles = list(dict.fromkeys(turn.role for one in group.trajectories for turn in one.turns))
        if roles in ([], [""]):
            parted.append(group)
            continue
        for role in roles:
            name = f"{group.id}@{role}"
            parted.append(
                Group(
                    name,
                    _parts(group.trajectories, role, name),
                    _parts(group.baseline_rollouts, role, name),
                )
            )
    return parted


def part_of(trajectory: Trajectory, role: str, group: str) -> Trajectory:
    """The part of a role that has turns in an episode, as a member of a group."""
    places = [n for n, turn in enumerate(trajectory.turns) if turn.role == role]
    verdict = trajectory.verdict
    return replace(
        trajectory,
        group=group,
        tokens=_tokens(trajectory, places),
        turns=tuple(trajectory.turns[place] for place in places),
        verdict=None if verdict is None else _verdict(verdict, role, places),
        capture=None,
    )


def _parts(trajectories: Sequence[Trajectory], role: str, group: str) -> tuple[Trajectory, ...]:
    return tuple(
        part_of(one, role, group)
        for one in trajectories
        if any(turn.role == role for turn in one.turns)
    )


def _verdict(verdict: Verdict, role: str, places: Sequence[int]) -> Verdict:
    given = verdict.turn_rewards
    return replace(
        verdict,
        reward=verdict.roles.get(role, verdict.reward),
        roles={},
        turn_parts={
            name: [numbers[place] for place in places]
            for name, numbers in verdict.turn_parts.items()
        },
        turn_rewards=given and [given[place] for place in places],
    )


def _tokens(trajectory: Trajectory, places: Sequence[int]) -> Tokens:
    """The contexts in which these turns were sampled; turns are counted anew."""
    tokens = trajectory.tokens
    own = [
        number
        for number, span in enumerate(tokens.spans)
        if np.isin(tokens.turn[span][tokens.mask[span]], places).any()
    ]
    spans = [tokens.spans[number] for number in own]
    kept = np.concatenate([np.arange(span.start, span.stop) for span in spans])
    starts = np.cumsum([0, *(span.stop - span.start for span in spans)])
    copied = [int(tokens.contexts[number, 1]) - tokens.spans[number].start for number in own]
    images = tuple(
        replace(image, start=image.start + int(start))
        for start, span in zip(starts, spans, strict=False)
        for image in tokens.images_in(span)
    )
    turns = np.searchsorted(places, tokens.turn[kept], side="right") - 1
    return Tokens(
        tokens.ids[kept],
        tokens.source[kept],
        np.maximum(turns, 0).astype(np.int32),
        tokens.version[kept],
        tokens.logprob[kept],
        np.array(
            [[start, start + count] for start, count in zip(starts, copied, strict=False)], np.int64
        ),
        images,
        None if tokens.experts is None else tokens.experts[kept],
        KeptTokens.chosen([(tokens.kept, kept)]),
    )

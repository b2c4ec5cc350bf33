"""Roles of an agent: engines of frozen ones, the policy at an earlier time; and the parts of roles
in episodes, each a trajectory by itself.

A role's part has its contexts, its turns and its reward, and is compared with those of the same
role in other episodes of the task.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from turnwise.engines.base import Engine, EngineSetup
from turnwise.engines.registry import ENGINES, make_engine
from turnwise.errors import ConfigError
from turnwise.forward.hidden import base_model
from turnwise.models.load import load_model
from turnwise.parts.components import Components
from turnwise.storage import checkpoint
from turnwise.tokens import KeptTokens, Tokens
from turnwise.types import Group, Trajectory, Verdict
from turnwise_gateway.settings import AgentConfig, FrozenPolicy


def frozen_engines(agent: AgentConfig, components: Components) -> dict[str, Engine]:
    """An engine for each checkpoint of a frozen role. Without one, it has the weights with which RL
    began in the run that the components' are of, or the recipe's own. Raises ConfigError for an
    engine that servers sample for, DataError for a damaged checkpoint."""
    recipe = components.recipe
    policies = [role.policy for role in agent.roles.values()]
    named = dict.fromkeys(one.checkpoint for one in policies if isinstance(one, FrozenPolicy))
    if named and not ENGINES.get(recipe.engine.name).shares_weights:
        raise ConfigError(
            f"a frozen role is sampled in this process, and engine {recipe.engine.name} has "
            "servers: serve its weights by one of your own, and set policy to an endpoint"
        )
    made, longest = {}, recipe.rollout.max_tokens
    for name in named:
        folder = Path(name) if name else _before_rl(components.weights)
        if folder is not None:
            checkpoint.check(folder)
        model, _ = load_model(recipe.model, folder, recipe.seed, longest)
        model.requires_grad_(False)
        made[name] = make_engine(
            EngineSetup(recipe.token_engine, base_model(model), components.tokenizer, longest)
        )
    return made


def _before_rl(weights: Path | None) -> Path | None:
    """The checkpoint that RL began with, of a run one of whose checkpoints is given."""
    return weights and checkpoint.before_rl(checkpoint.checkpoints_beside(weights))


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
    # What follows a turn of this role belongs to it, up to the next one.
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

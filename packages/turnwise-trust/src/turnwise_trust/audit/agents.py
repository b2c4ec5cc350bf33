"""The quick audit of an agent of the run's own: its model is a script, all else as in training.

No script can take the place of the program, which has tools and ways of its own. But what it is
paid for has to come from its model, so that says nothing, one word, or what it was asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from turnwise.engines.scripted import ScriptedEngine, ScriptedPolicy
from turnwise.parts.components import Components
from turnwise.rollout.runner import members_of, new_groups
from turnwise.storage.audits import Finding
from turnwise.types import Task, Trajectory
from turnwise_trust.audit.attempts import graded, succeeded
from turnwise_trust.audit.floors import IDLE, declared
from turnwise_trust.audit.plays import rate

WORD = "done"
LONGEST_ECHO = 200
"""Tokens from the end of a prompt that are said again."""
REMEDY = "Have the verdict, or the agent's own reward, ask for what its model has to find out."


async def findings(components: Components, tasks: Sequence[Task], seconds: float) -> list[Finding]:
    """Play each task once with each model, all tasks at once. The rewards are those of environment
    or agent, without a recipe's own parts."""
    limits, models = components.recipe.rollout, _models(components)
    longest = min(limits.max_seconds, seconds / len(models))
    limits = limits.model_copy(update={"max_seconds": longest})
    found = []
    for said, model in models.items():
        check = f"an agent whose model says {said}"
        parts = replace(components, engine=ScriptedEngine(model), reward=None)
        groups = new_groups(tasks, 1, components.recipe.seed, f"audit, {said}")
        played = members_of(await parts.runner(limits).play_groups(groups))
        found.append(_finding(check, played, declared(components.environment)))
    return found


def _models(components: Components) -> Mapping[str, ScriptedPolicy]:
    word = components.tokenizer(WORD, add_special_tokens=False)["input_ids"]
    return {
        "nothing": lambda session, prompt: [],
        "one word": lambda session, prompt: word,
        "what it was asked": lambda session, prompt: prompt[-LONGEST_ECHO:],
    }


def _finding(check: str, played: Sequence[Trajectory], known: float) -> Finding:
    ended = list(graded(played))
    if not ended:
        why = next((one.problem for one in played if one.problem), "there was no time")
        return Finding(check, note=f"no episode got a verdict: {why}")
    paid = [one for one in ended if succeeded(one)]
    share, bound = rate(len(paid), len(ended)), max(IDLE, known)
    return Finding(
        check,
        **share,
        bound=bound,
        passed=share["low"] <= bound,
        note=f"share of {len(ended)} tasks that it solves",
        replay=", ".join(f"task {one.task.id}" for one in paid[:1]),
        remedy=REMEDY,
    )

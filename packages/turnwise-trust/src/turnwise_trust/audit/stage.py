"""The quick audit: a run's first stage, before anything is trained.

Its page lies in the run's folder, with its hash in the title, which the report quotes.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

from turnwise.errors import ConfigError, DataError
from turnwise.storage.audits import Finding, read_audit, write_audit
from turnwise.training.context import RunContext
from turnwise.types import Task
from turnwise_environments.choosing import spread
from turnwise_trust.audit.attempts import LIMITS
from turnwise_trust.audit.calls import known_oracle
from turnwise_trust.audit.quick import QUICK, paged, tried
from turnwise_trust.audit.subject import Clock, Subject
from turnwise_trust.page import Page
from turnwise_trust.settings import AuditConfig

NAME = "environment"
"""The audit's name in the run's folder."""
TASKS = 8


class QuickAudit:
    """Refuses an environment in which something fails that the recipe does not accept."""

    async def run(self, context: RunContext, step: int) -> int:
        """Raise ConfigError for what fails. Nothing is played again once it has passed."""
        settings, recipe = context.recipe.find(AuditConfig), context.recipe
        assert settings is not None  # this wing is installed
        trained = recipe.train.steps or recipe.policy_updates
        if not settings.seconds or not trained or _has_passed(context, settings.accept):
            return step
        if why := _unplayable(context):
            title = f"Quick audit of {recipe.environment.name}: none, as {why}"
            write_audit(context.folder, NAME, title, [])
            return step
        page = await _page(context, settings.seconds)
        accepted = [one.check for one in page.failed if one.check in settings.accept]
        refused = _refused(page.findings, settings.accept)
        title = f"Quick audit of {recipe.environment.name}, {page.plain()['hash']}"
        unknown = "" if any(one.passed is not None for one in page.findings) else _first(page)
        said = unknown or _said(accepted, refused)
        findings = [_marked(one, accepted) for one in page.findings]
        write_audit(context.folder, NAME, f"{title}: {said}", findings)
        if refused:
            raise ConfigError(_reason(context, refused))
        if accepted or unknown:
            context.display.say(f"warning: {title}: {said}")
        return step


async def _page(context: RunContext, seconds: float) -> Page:
    """The page of a few training tasks."""
    tasks, components = spread(context.tasks, TASKS), context.components
    if components.player is not None:
        from turnwise_trust.audit import agents  # most runs have none

        found = await agents.findings(components, tasks, seconds)
        return paged(context.recipe.environment.name, found, [])
    return await asyncio.to_thread(tried, _subject(context, tasks, seconds), QUICK)


def _subject(context: RunContext, tasks: Sequence[Task], seconds: float) -> Subject:
    """Episodes are played in the loop of the run, as those of training."""
    loop, recipe = asyncio.get_running_loop(), context.recipe
    environment = context.components.environment
    longest = min(LIMITS.max_seconds, seconds)
    return Subject(
        recipe.environment.name,
        recipe.environment.options,
        environment,
        tasks,
        recipe.seed,
        *known_oracle(environment, tasks),
        limits=LIMITS.model_copy(update={"max_seconds": longest}),
        clock=Clock(time.monotonic() + seconds),
        run=lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(),
    )


def _unplayable(context: RunContext) -> str:
    """Why no script can play, as the end of a sentence; empty where one can."""
    if context.components.player is not None and context.components.workers is not None:
        return "an agent of the run's own plays its episodes, on workers"
    return "it shows images" if context.components.environment.shows_images else ""


def _has_passed(context: RunContext, accept: Sequence[str]) -> bool:
    """Whether an audit of this run is there, and nothing in it refuses the run."""
    try:
        found = read_audit(context.folder.path, NAME)["findings"]
    except DataError:  # there is none yet
        return False
    return not _refused(found, accept)


def _refused(findings: Sequence[Finding], accept: Sequence[str]) -> list[Finding]:
    return [one for one in findings if one.passed is False and one.check not in accept]


def _first(page: Page) -> str:
    """Why nothing could be judged, by the first finding that says it: a verifier may hang."""
    notes = (f"{one.check}: {one.note}" for one in page.findings)
    return f"nothing could be judged: {next(notes, 'there was no time')}"


def _marked(finding: Finding, accepted: Sequence[str]) -> Finding:
    if finding.check not in accepted:
        return finding
    return replace(finding, note=f"{finding.note}; accepted by the recipe")


def _said(accepted: Sequence[str], refused: Sequence[Finding]) -> str:
    if refused:
        return f"refused, {', '.join(one.check for one in refused)}"
    if accepted:
        return f"failed, and accepted by the recipe: {', '.join(accepted)}"
    return "nothing that was tried failed"


def _reason(context: RunContext, refused: Sequence[Finding]) -> str:
    first, name = refused[0], context.recipe.environment.name
    names = ", ".join(f'"{one.check}"' for one in refused)
    playable = context.components.player is None  # by a script, as the command does
    see = f"See `turnwise audit {name}`, or" if playable else "Or"
    figure = "" if first.figure is None else f" {first.figure:.3g},"
    return (
        f"environment {name} may not be trained on: {first.check}:{figure} {first.note}. "
        f"{first.remedy} {see} accept it: audit.accept=[{names}]"
    )

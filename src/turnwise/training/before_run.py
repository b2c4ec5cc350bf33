"""The checks before a run begins, as an audit in its folder: each with its figure and its bound.

Whatever fails there ends the run before anything is sampled, so what is written has passed; a
warning is what may be as it is.
"""

from collections.abc import Iterator

from turnwise.environments.splits import shared_tasks
from turnwise.learning.parity import Checked
from turnwise.storage.audits import BEFORE_RUN, Finding, write_audit
from turnwise.training.context import RunContext


def write_before_run(context: RunContext, parity: Checked | None) -> None:
    """Write down what was checked; without parity, nothing will be sampled."""
    title = "Before the run: what was checked"
    write_audit(context.folder, BEFORE_RUN, title, _findings(context, parity))


def _findings(context: RunContext, parity: Checked | None) -> Iterator[Finding]:
    yield Finding("The recipe and its algorithm go together", passed=True)
    yield Finding("Environment, model and scaffold have what the recipe asks for", passed=True)
    chosen = context.recipe.learning.compute_dtype
    why = context.components.why_compute_dtype
    yield Finding(f"Updates are computed in {chosen}", passed=True, note=why)
    if parity is not None:
        found, bound = parity
        note = f"nats, over histories of up to {found.tokens} tokens"
        for does, figure in (
            ("The engine samples", found.engine),
            ("The learner trains", found.learner),
        ):
            check = f"{does} what the model says of its tokens"
            yield Finding(check, figure, bound=bound, passed=True, note=note)
    shared = shared_tasks(context.tasks, context.heldout)
    same = context.components.environment.same_splits
    yield Finding(
        "Held-out tasks that are training tasks too",
        shared,
        bound=None if same else 0,
        passed=None if same else shared == 0,
        note="the environment has one set of tasks" if same else "",
    )
    asked = context.recipe.evaluation.tasks
    yield Finding(
        "Held-out tasks",
        len(context.heldout),
        passed=len(context.heldout) >= asked,
        note=f"{asked} are asked for",
    )
    for name, score in context.components.environment.spec.reference_scores.items():
        yield Finding(f"Success of {name}, as the environment states it", score)

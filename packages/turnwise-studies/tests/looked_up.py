"""An episode for exports: a call, a turn that is malformed, and an answer."""

from pathlib import Path

import numpy as np

from tests.rollout.playing import TOKENIZER, encode
from tests.rollout.test_context import Encyclopedia
from turnwise.config import check_recipe
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.storage.run_folder import RunFolder
from turnwise.tokens import Source, Tokens
from turnwise.types import (
    Action,
    Observation,
    Outcome,
    Step,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
    Verdict,
)

CALL = ToolCall("lookup", {"country": "Italy"}, "0.0")
TASK = Task("Italy", "Capital of Italy?", {"answers": ["a secret"]})
THOUGHT = "<think> look it up</think>"


def scaffold() -> TagsScaffold:
    return TagsScaffold(TOKENIZER, Encyclopedia().tools(), instructions="")


def looked_up() -> Trajectory:
    """The policy's version changes between turns."""
    turns = [
        Turn(
            Action(f"{THOUGHT}<lookup> Italy</lookup>", "look it up", (CALL,)),
            Step(Observation("Rome"), (ToolResult(CALL, "Rome"),)),
        ),
        Turn(Action("hm", error="no tag"), Step(Observation("no tag", Source.ENVIRONMENT))),
        Turn(Action("<answer> Rome</answer>", answer="Rome"), Step(done=True)),
    ]
    tokens = Tokens.empty().with_segments(scaffold().begin(Observation(TASK.prompt)), 0)
    for number, turn in enumerate(turns):
        ids = encode(turn.action.text)
        tokens = tokens.with_sampled(ids, np.linspace(-0.1, -3, len(ids)).tolist(), number, number)
        if turn.step is not None and turn.step.observation is not None:
            tokens = tokens.with_segments(scaffold().extend(turn.step.observation), number)
    verdict = Verdict(1.0, True, {"f1": 1.0}, "right")
    return Trajectory(TASK, "a/Italy", 0, 7, tokens, tuple(turns), Outcome.SUCCESS, verdict)


def begun(path: Path) -> RunFolder:
    folder = RunFolder.new(path)
    folder.begin(check_recipe({"name": "x", "environment": {"name": "search"}}, "test"))
    return folder

"""Episodes to judge, and judges whose model is a function."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from turnwise.chat.recording import Recording
from turnwise.types import (
    Action,
    Group,
    Observation,
    Outcome,
    Step,
    Task,
    ToolCall,
    Trajectory,
    Turn,
    Verdict,
)
from turnwise_judges.asking import Asker, Limits
from turnwise_judges.models import Script, ScriptedModel


def episode(
    answer: str = "tarfile",
    *,
    returned: str = "tarfile: read and write tar archives",
    number: int = 0,
    reward: float | None = 1.0,
    prompt: str = "Which module defines TarFile?",
) -> Trajectory:
    """An episode with one search and an answer; ungraded where its reward is None."""
    search = Action("<search>TarFile</search>", calls=(ToolCall("search", {"query": "TarFile"}),))
    turns = (
        Turn(search, Step(Observation(returned))),
        Turn(Action(f"<answer>{answer}</answer>", answer=answer)),
    )
    outcome = Outcome.SUCCESS if reward else Outcome.FAILURE
    return Trajectory(
        Task("t", prompt, {"answers": ["a secret"]}),
        "g",
        number,
        seed=number,
        turns=turns,
        outcome=Outcome.GRADER_ERROR if reward is None else outcome,
        verdict=None if reward is None else Verdict(reward, bool(reward), detail="a detail"),
    )


def group(*answers: str) -> Group:
    """Episodes of one task with these answers."""
    return Group("g", tuple(episode(answer, number=n) for n, answer in enumerate(answers)))


def asker(model: Any, limits: Limits | None = None, seed: int = 0) -> Asker:
    """An asker of a model, or of a function, without a file."""
    model = model if hasattr(model, "complete") else ScriptedModel(model)
    return Asker(model, limits or Limits(), Recording(None, "the judge"), seed)


def answering(decide: Callable[[Any], dict[str, Any]]) -> Script:
    """A model that reads the data, and answers with what is decided of it."""

    def script(messages: Sequence[Any]) -> str:
        data, _, example = parts(messages)
        return json.dumps(json.loads(example) | decide(json.loads(data)))

    return script


def longer(data: Any) -> dict[str, Any]:
    """Prefer the longer answer."""
    first, second = (len(data[which]["answer"]) for which in ("first", "second"))
    return {"better": "tie" if first == second else "first" if first > second else "second"}


def parts(messages: Sequence[Any]) -> tuple[str, str, str]:
    """The line of data, the question, and the line with the example."""
    lines = messages[-1]["content"].splitlines()
    assert lines[0].startswith("BEGIN DATA ")
    assert lines[2] == f"END DATA {lines[0].split()[-1]}"
    return lines[1], "\n".join(lines[3:-1]), lines[-1]

"""Code as action over a session: what a block defines is there for the next one."""

import asyncio

from tests.fakes import Capitals, byte_tokenizer
from turnwise.config import RolloutConfig
from turnwise.engines.scripted import ScriptedEngine
from turnwise.rollout.priority_semaphore import PrioritySemaphore
from turnwise.rollout.runner import RolloutRunner
from turnwise.tools.tool import tool
from turnwise.types import Observation, Outcome, Task
from turnwise_environments.scaffolds.code import CodeScaffold
from turnwise_sandbox.sandbox import Sandbox
from turnwise_sandbox.tools.python import PythonSession

TOKENIZER = byte_tokenizer()


def encode(text: str) -> list[int]:
    return list(TOKENIZER(text, add_special_tokens=False)["input_ids"])


class Notebook(Capitals):
    """With a sandbox beside the other tool."""

    def __init__(self) -> None:
        self.sandbox = Sandbox()

    async def reset(self, task: Task, seed: int) -> Observation:
        self.session = PythonSession(self.sandbox)
        return await super().reset(task, seed)

    @tool
    def python(self, code: str) -> str:
        """Run Python; variables are kept."""
        return self.session.run(code)

    async def close(self) -> None:
        self.session.close()


def test_variables_are_kept_in_a_session_and_other_tools_are_called_outside_of_it() -> None:
    environment = Notebook()
    scaffold = CodeScaffold(TOKENIZER, environment.tools(), instructions="")
    blocks = iter(["x = 20", "print(x + 22)", "lookup('France')", "final_answer('Paris')"])
    engine = ScriptedEngine(lambda session, prompt: encode(f"<code>\n{next(blocks)}\n</code>"))
    limits = RolloutConfig(max_turn_tokens=100)
    runner = RolloutRunner(environment, scaffold, engine, limits, PrioritySemaphore(1))
    (group,) = asyncio.run(runner.collect(environment.tasks("train")[:1], 1, 0, "test"))
    played = group.trajectories[0]
    assert played.outcome == Outcome.SUCCESS
    assert [text.strip() for text in played.observed[1:]] == ["42", "The capital is Paris."]

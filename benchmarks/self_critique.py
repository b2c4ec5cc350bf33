"""Self-critique beside a verifiable reward: what a rubric changes, and whether refining the critic
on what the verifier knows keeps its judgement sound.

    .venv/bin/python benchmarks/self_critique.py --seeds 0 1 2 --out runs/self_critique

Not here: the run of a judge (`docs/how-to/judges.md`).
"""

import random
from collections.abc import Sequence

from turnwise.chat.recording import Recording
from turnwise.config import RolloutConfig
from turnwise.environments.base import Environment, EnvironmentSpec, Split
from turnwise.judges.asking import Asker, Limits
from turnwise.judges.pairwise import Better, PairwiseJudge
from turnwise.judges.rubric import Criterion
from turnwise.seeds import derive
from turnwise.types import Action, Task, Trajectory, Verdict

VOCABULARY = """
    object file set read return string list error add class decode encode value this dist path
    given name log format close multi data call create final new current option widget time
    number item command run bytes module header xml async end sub which default method start
    iter write none open process find copy parse email message context test line direct mode
    key event server import base socket used tuple files app out values check type builtin url
    one text handle trace remove
"""
WORDS = VOCABULARY.split()
"""Words of one token of the model's."""
FILLERS = ("as you asked", "and it is right", "with all errors found", "for the given name")
QUESTION = "Which of the two answers is right? Say `first`, `second`, or `tie`."
CRITERIA = {"plain": "The answer is one word alone."}
TEMPLATE = (
    "{% for message in messages %}{{ message.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Answer: {% endif %}"
)
MAX_CHARACTERS = 1000
LIMITS = RolloutConfig(max_turns=1, max_turn_tokens=24, max_tokens=1000)


class Cards(Environment):
    """Two cards, and a question about a field of one. The verifier looks at the first word of the
    answer; what follows it is reported (`plain`) and not judged."""

    @property
    def spec(self) -> EnvironmentSpec:
        return EnvironmentSpec("cards", "1", "0" * 64)

    def tasks(self, split: Split) -> Sequence[Task]:
        """4,000 tasks for training and 2,000 held-out ones, of other cards."""
        places = range(4000) if split == "train" else range(4000, 6000)
        return [_task(number) for number in places]

    async def verify(self, trajectory: Trajectory) -> Verdict:
        words = (trajectory.answer or "").split()
        right = words[:1] == [trajectory.task.secret["value"]]
        return Verdict(float(right), right, {"plain": float(len(words) == 1)})

    def oracle(self, task: Task) -> Sequence[Action]:
        return [Action("", answer=task.secret["value"])]


def _task(number: int) -> Task:
    stream = random.Random(derive(0, "cards", number))
    one, other, field, wrong = stream.sample(WORDS, 4)
    cards = [(one, field), (other, wrong)]
    stream.shuffle(cards)
    shown = " ".join(f"Class {name}. Module: {value}." for name, value in cards)
    prompt = f"{shown} Module of {one}"
    return Task(f"{number}", prompt, {"value": field, "wrong": wrong})


def answer(task: Task, right: bool, plain: bool, stream: random.Random) -> str:
    """A scripted answer."""
    value = task.secret["value" if right else "wrong"]
    return value if plain else f"{value} {stream.choice(FILLERS)}"


def better(first: Trajectory, second: Trajectory) -> Better:
    """The verdict that the model is taught: success first, then the rubric."""
    keys = [
        (one.verdict.success, one.verdict.parts["plain"]) for one in (first, second) if one.verdict
    ]
    if keys[0] == keys[1]:
        return Better.TIE
    return Better.FIRST if keys[0] > keys[1] else Better.SECOND


def scripted_judge() -> PairwiseJudge:
    """The judge's requests; it is never asked."""
    asker = Asker(None, Limits(), Recording(None, "the judge"), 0)  # type: ignore[arg-type]
    criteria = [Criterion(name, sentence) for name, sentence in CRITERIA.items()]
    return PairwiseJudge(asker, criteria, None, QUESTION, MAX_CHARACTERS)

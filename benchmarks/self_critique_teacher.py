"""The task of `self_critique.py`, and a teacher of it: scripted answers, and judgements of them.

A prompt asks for a word of a kind; the verifier looks at the first word of the answer. The rubric
wants the answer to be that word alone, which the verifier does not see.
"""

import json
import random
from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from turnwise.chat.recording import Recording
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.base import Environment, EnvironmentSpec, Split
from turnwise.rewards.parts import RewardPart
from turnwise.scaffolds.tags import TagsScaffold
from turnwise.seeds import derive
from turnwise.tokens import Segment, Source, Tokens
from turnwise.types import Action, Observation, Outcome, Task, Trajectory, Turn, Verdict
from turnwise_judges.asking import Asker, Limits
from turnwise_judges.models import EngineModel, Policy
from turnwise_judges.pointwise import PointwiseJudge
from turnwise_judges.prompt import escaped

VOCABULARY = """
    object file set read return string list error add decode encode this dist path
    given name log format close multi data call create final new current option widget time
    number item command run bytes module header xml async end sub which default method start
    iter write none open process find copy parse email message context test line direct mode
    key event server import base socket used tuple files app out values check type builtin url
    one text handle trace remove
"""
WORDS = VOCABULARY.split()
"""Words of one token of the model's."""
KINDS = {"class": WORDS[::2], "value": WORDS[1::2]}
"""Two kinds of words, which the base is taught, and nothing else tells."""
KIND_OF = {word: kind for kind, words in KINDS.items() for word in words}
FILLERS = ("as you asked", "and it is right", "with all errors found", "for the given name")
"""What long answers go on with."""
RIGHT, JUDGED_RIGHT, PLAIN = 0.7, 0.5, 0.35
"""Shares of scripted answers that are right, of those to be given and those to be judged; and that
are one word."""
QUESTION = "Is the answer right? One that is right, and one word alone, is the best."
"""The rubric, of which the verifier sees the first half."""
SCORES = {(True, True): 1.0, (True, False): 0.7, (False, True): 0.3, (False, False): 0.0}
"""What the base is taught of right and plain answers: success first, then the rubric."""
TEMPLATE = (
    "{% for message in messages %}{{ message.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Answer: {% endif %}"
)
"""As much of a chat template as a judge needs."""
MAX_CHARACTERS = 600
"""Of a record as it is quoted."""
LESSONS = 1800
"""Scripted answers that the base is taught to judge, and as many that it is taught to give."""
SHORT = 4
"""Judgements of short requests beside each: the task and the answer alone."""


class Kinds(Environment):
    """Name a word of a kind. The verifier looks at the first word of the answer; whether it is the
    only one is reported as the part `plain`, and not judged."""

    @property
    def spec(self) -> EnvironmentSpec:
        return EnvironmentSpec("kinds", "1", "0" * 64, parts={"plain": RewardPart(0, 1)})

    def tasks(self, split: Split) -> Sequence[Task]:
        """Tasks for training and held-out ones; what a word is asked for tells them apart."""
        asked = [(one, other, kind) for one in WORDS for other in WORDS for kind in KINDS]
        random.Random(0).shuffle(asked)
        chosen = asked[:4000] if split == "train" else asked[4000:6000]
        return [
            Task(f"{one} {other} {kind}", f"For {one} {other}: name a {kind}", {"kind": kind})
            for one, other, kind in chosen
        ]

    async def verify(self, trajectory: Trajectory) -> Verdict:
        return verdict_on(trajectory.task, trajectory.answer)


def verdict_on(task: Task, answer: str | None) -> Verdict:
    """Whether the first word is of the kind, and whether it is the only one."""
    words = (answer or "").split()
    right = bool(words) and KIND_OF.get(words[0]) == task.secret["kind"]
    return Verdict(float(right), right, {"plain": float(len(words) == 1)})


def scripted_answer(task: Task, stream: random.Random, share: float) -> str:
    """An answer that is right or wrong, plain or long; `share` is that of right ones."""
    asked = task.secret["kind"]
    other = next(kind for kind in KINDS if kind != asked)
    word = stream.choice(KINDS[asked if stream.random() < share else other])
    return word if stream.random() < PLAIN else f"{word} {stream.choice(FILLERS)}"


class Teacher:
    """Scripted episodes and judgements of them, in the tokens of training and judging."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.environment, self.tokenizer = Kinds(), tokenizer
        self.scaffold = TagsScaffold(tokenizer, self.environment.tools(), instructions="")
        self.model = EngineModel(Policy(ScriptedEngine(lambda *_: []), tokenizer, lambda: ""))
        asker = Asker(self.model, Limits(), Recording(None, "the judge"), 0)
        self.judge = PointwiseJudge(asker, 0.0, 1.0, QUESTION, MAX_CHARACTERS)

    def episodes(
        self, count: int, split: Split, seed: int, share: float = JUDGED_RIGHT
    ) -> list[Trajectory]:
        """Scripted episodes of tasks that are drawn at random, with a share of right ones."""
        stream = random.Random(seed)
        tasks = stream.choices(self.environment.tasks(split), k=count)
        return [self._episode(task, stream, share) for task in tasks]

    def _episode(self, task: Task, stream: random.Random, share: float) -> Trajectory:
        written = self.scaffold.render(Action("", answer=scripted_answer(task, stream, share)))
        prompt = self.scaffold.begin(Observation(task.prompt, Source.USER))
        tokens = Tokens.empty().with_segments(prompt, turn=0)
        tokens = tokens.with_sampled(written, [0.0] * len(written), 0, turn=0)
        action = self.scaffold.parse(written)
        verdict = verdict_on(task, action.answer)
        outcome = Outcome.SUCCESS if verdict.success else Outcome.FAILURE
        return Trajectory(task, "scripted", 0, 0, tokens, (Turn(action),), outcome, verdict)

    def lessons(self, seed: int) -> list[Tokens]:
        """Episodes, judgements, and judgements of short requests, in turn."""
        found: list[Tokens] = []
        given = self.episodes(LESSONS, "train", derive(seed, "given"), RIGHT)
        asked = self.episodes(LESSONS, "train", derive(seed, "judged"))
        short = iter(self.episodes(SHORT * LESSONS, "train", derive(seed, "short")))
        for number, (own, other) in enumerate(zip(given, asked, strict=True)):
            found += [own.tokens, self.judgement(other, derive(seed, "mark", number))]
            found += [self.short_judgement(next(short)) for _ in range(SHORT)]
        return found

    def judgement(self, episode: Trajectory, seed: int) -> Tokens:
        """A request and the right reply; the seed is that of the mark."""
        request = self.judge.request(episode)
        reply = {"nonce": request.nonce(seed), **_reply(episode)}
        return self._taught(self.model.segments(request.messages(seed)), reply)

    def short_judgement(self, episode: Trajectory) -> Tokens:
        """The task and the answer, and the right reply without a mark."""
        text = f"{episode.task.prompt}\n{escaped(episode.turns[0].action.text)}\n"
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return self._taught([Segment(ids, Source.USER)], _reply(episode))

    def _taught(self, segments: Sequence[Segment], reply: dict[str, Any]) -> Tokens:
        ids = self.tokenizer(json.dumps(reply), add_special_tokens=False)["input_ids"]
        ids = [*ids, self.tokenizer.eos_token_id]
        prompt = Tokens.empty().with_segments(segments, turn=0)
        return prompt.with_sampled(ids, [0.0] * len(ids), 0, turn=0)


def _reply(episode: Trajectory) -> dict[str, Any]:
    """The steps of the judgement, then its score."""
    assert episode.verdict is not None  # it is graded
    right, plain = quality(episode)
    word = (episode.answer or "").split()[0]
    found = f"{'right' if right else 'wrong'} {'plain' if plain else 'long'}"
    steps = f"answer> {word} {KIND_OF[word]}; name a {episode.task.secret['kind']}; {found}"
    return {"reason": steps, "score": SCORES[right, plain]}


def quality(member: Trajectory) -> tuple[bool, bool]:
    """Whether it is right, and whether it is one word."""
    assert member.verdict is not None  # it is graded
    return member.verdict.success, member.verdict.parts["plain"] == 1.0

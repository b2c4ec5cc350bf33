"""A village of three, in which things are moved, people eat and have news, and tell each other.

    [environment]
    name = "village"
    options = { recalled = 3, recency = 0.0 }

The policy plays all of them in turn, each time in a context of its own: it is shown who it is, what
that one recalls of its memory stream, and a question, whose answer is a word. What it says to
another one is observed by that one, right or wrong; what it writes when it reflects is a memory, of
what someone likes. Source: Generative Agents (arXiv 2304.03442). Not here: plans; importance that
the policy rates (it goes by what happens); and the questions that a reflection begins with (it is
about the one who was observed most).
"""

import random
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from turnwise.conflicts import Claim, Need
from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.tasksets import SOLVED, SPLITS, Split, TaskSet, identities
from turnwise.environments.turn_parts import share
from turnwise.ranges import Count, Range
from turnwise.rewards.answer import exact_match
from turnwise.seeds import derive
from turnwise.tokens import Source
from turnwise.types import Action, Observation, Step, Task, Trajectory, Verdict
from turnwise_environments.common import words_in
from turnwise_environments.tools.memory_stream import MemoryStream

PEOPLE = words_in("Ana Ben Cleo Dora Emil Finn Gus Hana")
THINGS = words_in("rope lamp drum saw bell cart key net")
PLACES = words_in("barn mill well inn shop dock")
FOODS = words_in("fig rye plum nut pea leek")
NEWS = words_in("wedding fire prize baby flu trip")
KINDS = {
    "place": "where a thing is now",
    "teller": "who told of a thing",
    "news": "what happened to someone",
    "taste": "what someone likes",
    "guest": "whom to invite to what they like",
}
TASTE = "{} likes what?"
IMPORTANCE = {"meal": (1, 3), "place": (3, 6), "news": (8, 10)}
"""The lowest and highest importance of what happens, of 1 to 10."""
REFLECTION, REFLECTED = 8.0, 3
"""The importance of a reflection; the times as many memories that are recalled for one."""
DAYS, HOURS, NOON, EVENING, ASKED_FROM = 5, range(8, 20), 13, 20, 2
SEEN, MOVED, FAVOURITE = 0.7, 0.3, 0.55
"""Chances: that another one sees what happens; that a thing is moved in an hour without news; that
a meal is of the favourite food."""


@dataclass(frozen=True)
class Scene:
    """A question, an event, or both, where one hears what another one has answered.

    Example: Scene(9, "place", text="rope in barn", seen_by=["Ana", "Ben"], importance=4.0)
    """

    hour: int
    kind: str
    who: str = ""
    """The one who is asked."""
    question: str = ""
    answer: str = ""
    text: str = ""
    """The memory of those who see it, with a place for the answer."""
    seen_by: Sequence[str] = ()
    importance: float = 0.0


class Village(Environment):
    """See the module; the reward is the share of right answers, success that all are right."""

    facts = EnvironmentSpec(
        "village",
        "1",
        rewards="shares",
        parts={
            "right": share("share of right answers"),
            "recalled": share("share of questions whose answer stands in what was recalled"),
            **{f"right_{kind}": share(f"right answers: {asked}") for kind, asked in KINDS.items()},
        },
    )

    def __init__(
        self,
        recalled: Annotated[int, Range(0)] = 3,
        recency: float = 1.0,
        importance: float = 1.0,
        relevance: float = 1.0,
        reflection: Annotated[float, Range(0)] = 30.0,
        count: Count = 1000,
    ) -> None:
        """`recalled` memories stand in a prompt, chosen by the weights `recency`, `importance` and
        `relevance`. One reflects when the importance of what was observed adds up to `reflection`
        (0 for never). `count` villages in each split, drawn at random."""
        self.recalled, self.reflection = recalled, reflection
        self.weights = recency, importance, relevance
        tasks = {split: [_task(split, place) for place in range(count)] for split in SPLITS}
        self.task_set = TaskSet.of(tasks, SOLVED, content=identities)

    def claims(self) -> Iterator[Claim]:
        yield from super().claims()
        several = {Need.ONE_CONTEXT: "has one for each question"}
        yield Claim("environment village", (Need.OWN_LOOP,), several, "choose another one")

    async def reset(self, task: Task, seed: int) -> Observation:
        self._begin(task)
        return await super().reset(task, seed)

    async def step(self, action: Action) -> Step:
        """Take an answer and show the next question. The first answer is to no question."""
        if action.answer is None:
            return await super().step(action)
        shown = self._life.send(action.answer)
        if not shown:
            return Step(done=True)
        return Step(Observation(shown, Source.ENVIRONMENT), forgets=True)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """A question that was not reached has no right answer."""
        del trajectory
        asked, right = self._asked.total(), self._right.total()
        parts = {f"right_{kind}": self._right[kind] / self._asked[kind] for kind in KINDS}
        parts |= {"right": right / asked, "recalled": self._found / asked}
        return Verdict(right / asked, right == asked, parts, f"{right} of {asked} right")

    def oracle(self, task: Task) -> Sequence[Action]:
        """The right answers; in reflections what someone likes, whatever was seen of it."""
        episode, said = self.fresh(), ["begin"]
        episode._begin(task)
        while episode._life.send(said[-1]):
            said.append(episode._answer)
        return [Action("", answer=one) for one in said]

    def _begin(self, task: Task) -> None:
        self._story = Story(task.data["village"])
        scenes = list(self._story.told())
        self._asked = Counter(one.kind for one in scenes if one.who)
        self._right, self._found = Counter[str](), 0
        self._streams = {who: MemoryStream(*self.weights) for who in self._story.tastes}
        self._life = self._lived(scenes)
        next(self._life)

    def _lived(self, scenes: Sequence[Scene]) -> Generator[str, str, None]:
        """All that the policy is shown, from its answers; nothing before and after."""
        yield ""
        for one in scenes:
            said = (yield from self._asked_in(one)) if one.who else ""
            for who in one.seen_by:
                self._streams[who].observe(one.text.format(said), one.importance, one.hour)
                if 0 < self.reflection <= self._streams[who].burden:
                    yield from self._reflecting(who, one.hour)
        yield ""

    def _asked_in(self, one: Scene) -> Generator[str, str, str]:
        recalled = self._streams[one.who].recall(one.question, self.recalled, one.hour)
        said = yield from self._shown(one, recalled)
        self._right[one.kind] += exact_match(said, [one.answer])
        self._found += any(one.answer in text.split() for text in recalled)
        return said

    def _reflecting(self, who: str, hour: int) -> Generator[str, str, None]:
        """Ask what that one likes of whom most of the new memories are."""
        stream, tastes = self._streams[who], self._story.tastes
        seen = " ".join(stream.since_reflection).split()
        about = max((one for one in tastes if one != who), key=seen.count)
        one = Scene(hour, "taste", who, TASTE.format(about), tastes[about])
        recalled = stream.recall(one.question, REFLECTED * self.recalled, hour)
        said = yield from self._shown(one, recalled)
        stream.reflect(f"{about} likes {said}", REFLECTION, hour)

    def _shown(self, one: Scene, recalled: Sequence[str]) -> Generator[str, str, str]:
        """Show what is asked, and what is recalled; the word that is said, none of several."""
        self._answer = one.answer
        said = yield " ".join([f"{one.who}.", *(f"{text}." for text in recalled), one.question])
        words = said.split()
        return words[0] if len(words) == 1 else ""


class Story:
    """The events and questions of a village, all of which follow from its name."""

    def __init__(self, name: str) -> None:
        self._stream = stream = random.Random(derive("village", name))
        people = stream.sample(PEOPLE, 3)
        self._foods = stream.sample(FOODS, 4)
        # The fourth food is nobody's: what the last one likes cannot be found by leaving out.
        self.tastes = dict(zip(people, self._foods, strict=False))
        self._places: dict[str, str] = {}
        self._knowing: dict[str, list[str]] = {}
        self._tellers: dict[tuple[str, str], str] = {}
        self._news: dict[str, Scene] = {}

    def told(self) -> Iterator[Scene]:
        """All of it, in order. On each of the first days one of the people has news."""
        people, draw = list(self.tastes), self._stream
        for thing in draw.sample(THINGS, 2):
            yield self._moves(HOURS.start, thing, people)
        for day in range(DAYS):
            news = draw.choice(HOURS)
            for hour in HOURS:
                now = 24 * day + hour
                if hour == NOON:
                    yield self._meets(now)
                if hour == news and day < len(people):
                    yield self._has_news(now, people[day])
                elif draw.random() < MOVED:
                    yield self._moves(now, draw.choice(list(self._places)), self._some(people))
                else:
                    yield self._eats(now, draw.choice(people))
            if day >= ASKED_FROM:
                yield from self._evening(24 * day + EVENING)

    def _moves(self, hour: int, thing: str, seen_by: Sequence[str]) -> Scene:
        elsewhere = [place for place in PLACES if place != self._places.get(thing)]
        self._places[thing] = self._stream.choice(elsewhere)
        self._knowing[thing] = list(seen_by)
        return self._event(hour, "place", f"{thing} in {self._places[thing]}", seen_by)

    def _has_news(self, hour: int, who: str) -> Scene:
        text = f"{who} has {self._stream.choice(NEWS)}"
        self._news[who] = event = self._event(hour, "news", text, self._some(self._others(who)))
        return event

    def _eats(self, hour: int, who: str) -> Scene:
        food = self.tastes[who]
        if self._stream.random() > FAVOURITE:
            food = self._stream.choice([one for one in self._foods if one != food])
        return self._event(hour, "meal", f"{who} eats {food}", self._some(self._others(who)))

    def _meets(self, hour: int) -> Scene:
        """Have one ask another, who could know where a thing is."""
        thing = self._stream.choice(list(self._places))
        who = self._stream.choice(self._knowing[thing])
        hearer = self._stream.choice(self._others(who))
        self._tellers[hearer, thing] = who
        self._knowing[thing].append(hearer)
        told = self._event(hour, "place", f"{who} says {thing} in {{}}", [hearer])
        question = f"Where is {thing}?"
        return replace(told, who=who, question=question, answer=self._places[thing])

    def _evening(self, hour: int) -> Iterator[Scene]:
        """A question of each kind, to one who could know."""
        choice = self._stream.choice
        thing, knowing = choice(list(self._knowing.items()))
        yield Scene(hour, "place", choice(knowing), f"Where is {thing}?", self._places[thing])
        (who, thing), teller = choice(list(self._tellers.items()))
        yield Scene(hour, "teller", who, f"Who says where {thing} is?", teller)
        about, news = choice(list(self._news.items()))
        yield Scene(hour, "news", choice(news.seen_by), f"What of {about}?", news.text.split()[-1])
        about, food = choice(list(self.tastes.items()))
        yield Scene(hour, "taste", choice(self._others(about)), TASTE.format(about), food)
        about, food = choice(list(self.tastes.items()))
        yield Scene(hour, "guest", choice(self._others(about)), f"Invite whom for {food}?", about)

    def _event(self, hour: int, kind: str, text: str, seen_by: Sequence[str]) -> Scene:
        importance = self._stream.uniform(*IMPORTANCE[kind])
        return Scene(hour, kind, text=text, seen_by=seen_by, importance=importance)

    def _others(self, who: str) -> list[str]:
        return [one for one in self.tastes if one != who]

    def _some(self, people: Sequence[str]) -> list[str]:
        """Draw those who see it, one at least."""
        seeing = [one for one in people if self._stream.random() < SEEN]
        return seeing or [self._stream.choice(people)]


def _task(split: Split, place: int) -> Task:
    return Task(f"{split}-{place}", "A village.", data={"village": f"{split} {place}"})

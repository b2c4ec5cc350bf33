"""A village of three, in which things are moved, people eat and have news, and tell each other.

    [environment]
    name = "village"
    options = { recalled = 3, weights = { recency = 0.0 } }

The policy plays all of them in turn, each time in a context of its own: it is shown who it is, what
that one recalls of its memory stream, and a question, whose answer is a word. What it says to
another one is observed by that one, right or wrong; what it writes when it reflects is a memory, of
what someone likes. Source: Generative Agents (arXiv 2304.03442). Not here: plans, importance that
the policy rates (it goes by what happens), and the questions that a reflection begins with (who was
observed most).
"""

import random
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from turnwise.conflicts import Claim, Need
from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.tasksets import SOLVED, SPLITS, TaskSet, identities
from turnwise.environments.turn_parts import share
from turnwise.ranges import Count, Range
from turnwise.rewards.answer import exact_match
from turnwise.seeds import derive
from turnwise.tokens import Source
from turnwise.types import Action, Observation, Step, Task, Trajectory, Verdict
from turnwise_environments.common import words_in
from turnwise_environments.tools.memory_stream import MemoryStream, Weights

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
    "guest": "whom to invite, for what they like",
}
IMPORTANCE = {"meal": (1, 3), "place": (3, 6), "told": (3, 6), "news": (8, 10)}
"""The lowest and highest importance of what happens, of 1 to 10."""
REFLECTION_IMPORTANCE = 8.0
REFLECTED = 3
"""Times as many memories as for an answer that are recalled for a reflection."""
TASTE = "{} likes what?"
DAYS, HOURS, NOON, EVENING, FIRST_EVENING = 5, range(8, 20), 13, 20, 2
SEEN, MOVED, FAVOURITE = 0.7, 0.3, 0.55
"""Chances: that one of the others sees what happens; that a thing is moved in an hour, where nobody
has news; that somebody eats the favourite food."""
WORDS = 3
"""Words of an answer that another one hears, at most."""


@dataclass(frozen=True)
class Event:
    """Example: Event(9, "rope in barn", 4, ("Ana", "Ben"))."""

    hour: int
    text: str
    importance: float
    seen_by: Sequence[str]


@dataclass(frozen=True)
class Question:
    """Example: Question(44, "place", "Ana", "Where is rope?", "barn")."""

    hour: int
    kind: str
    who: str
    """The one who is asked."""
    text: str
    answer: str
    hearer: str = ""
    """The one who asks, where it is one of them."""
    told: str = ""
    """What this one observes, with a place for the answer."""
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
        weights: Weights = Weights(),
        reflection: Annotated[float, Range(0)] = 30.0,
        count: Count = 1000,
    ) -> None:
        """`recalled` memories stand in a prompt, REFLECTED times as many where one reflects, which is
        due when the importance of what was observed adds up to `reflection` (0 for never).
        `weights` are those of a memory's score. `count` villages in each split, drawn at random."""
        self.recalled, self.weights, self.reflection = recalled, weights, reflection
        tasks = {
            split: [
                Task(f"{split}-{n}", "A village.", data={"village": f"{split} {n}"})
                for n in range(count)
            ]
            for split in SPLITS
        }
        self.task_set = TaskSet.of(tasks, SOLVED, content=identities)

    def claims(self) -> Iterator[Claim]:
        yield from super().claims()
        several = {Need.ONE_CONTEXT: "has one for each time that somebody is asked"}
        yield Claim("environment village", (Need.OWN_LOOP,), several, "choose another one")

    async def reset(self, task: Task, seed: int) -> Observation:
        del seed
        self._begin(task)
        return Observation(task.prompt, Source.USER)

    async def step(self, action: Action) -> Step:
        """Take an answer and show the next question. The first answer is to nothing: that the
        policy begins."""
        if action.answer is None:
            return await super().step(action)
        shown = self._go_on(action.answer)
        if shown is None:
            return Step(done=True)
        return Step(Observation(shown, Source.ENVIRONMENT), forgets=True)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """What was not asked any more is not right."""
        del trajectory
        asked = sum(self._asked.values())
        right = self._right.total() / asked
        parts = {f"right_{kind}": self._right[kind] / self._asked[kind] for kind in KINDS}
        found = {"right": right, "recalled": self._found / asked, **parts}
        detail = f"{self._right.total()} of {asked} right"
        return Verdict(right, self._right.total() == asked, found, detail)

    def oracle(self, task: Task) -> Sequence[Action]:
        """The right answers; in reflections what someone likes, whatever was seen of it."""
        told = self.fresh()
        told._begin(task)
        said = ["begin"]
        while told._go_on(said[-1]) is not None:
            said.append(told._answer)
        return [Action("", answer=one) for one in said]

    def _begin(self, task: Task) -> None:
        story = Story(str(task.data["village"]))
        happens = list(story.told())
        self._asked = Counter(one.kind for one in happens if isinstance(one, Question))
        self._right, self._found, self._answer = Counter[str](), 0, ""
        self._life = self._lived(happens, story.tastes)
        next(self._life)

    def _go_on(self, said: str) -> str | None:
        """The next question, with what is recalled for it; None at the end."""
        try:
            return self._life.send(said)
        except StopIteration:
            return None

    def _lived(
        self, happens: Sequence["Event | Question"], tastes: Mapping[str, str]
    ) -> Generator[str, str, None]:
        """All that the policy is shown, from its answers; first nothing."""
        streams = {who: MemoryStream(self.weights) for who in tastes}
        yield ""
        for one in happens:
            if isinstance(one, Question):
                recalled = streams[one.who].recall(one.text, self.recalled, one.hour)
                self._answer = one.answer
                said = yield _shown(one.who, one.hour, recalled, one.text)
                self._right[one.kind] += exact_match(said, [one.answer])
                self._found += any(one.answer in text.split() for text in recalled)
                heard = [(one.hearer, one.told.format(_heard(said)))] if one.hearer else []
            else:
                heard = [(who, one.text) for who in one.seen_by]
            for who, text in heard:
                streams[who].observe(text, one.importance, one.hour)
                if 0 < self.reflection <= streams[who].burden:
                    yield from self._reflecting(who, streams[who], one.hour, tastes)

    def _reflecting(
        self, who: str, stream: MemoryStream, hour: int, tastes: Mapping[str, str]
    ) -> Generator[str, str, None]:
        """One question, of the one whom most of the new memories are about."""
        seen = Counter(word for text in stream.since_reflection for word in text.split())
        about = max((one for one in tastes if one != who), key=seen.__getitem__)
        question = TASTE.format(about)
        recalled = stream.recall(question, REFLECTED * self.recalled, hour)
        self._answer = tastes[about]
        said = yield _shown(who, hour, recalled, question)
        stream.reflect(f"{about} likes {_heard(said)}", REFLECTION_IMPORTANCE, hour)


class Story:
    """What happens in a village, and what is asked there: all of it follows from its name."""

    def __init__(self, name: str) -> None:
        self._stream = stream = random.Random(derive("village", name))
        self.people = stream.sample(PEOPLE, 3)
        self._foods = stream.sample(FOODS, len(self.people) + 1)
        self.tastes = dict(zip(self.people, self._foods, strict=False))
        self._places: dict[str, str] = {}
        self._knowing: dict[str, list[str]] = {}
        self._tellers: dict[tuple[str, str], str] = {}
        self._news: dict[str, tuple[str, Sequence[str]]] = {}

    def told(self) -> Iterator[Event | Question]:
        """All of it, in order. On each of the first days one of the people has news."""
        for thing in self._stream.sample(THINGS, 2):
            yield self._moves(HOURS.start, thing, self.people)
        for day in range(DAYS):
            news, start = self._stream.choice(HOURS), 24 * day
            for hour in HOURS:
                if hour == NOON:
                    yield self._meets(start + hour)
                if hour == news and day < len(self.people):
                    yield self._has_news(start + hour, self.people[day])
                elif self._stream.random() < MOVED:
                    thing = self._stream.choice(list(self._places))
                    yield self._moves(start + hour, thing, self._some(self.people))
                else:
                    yield self._eats(start + hour)
            if day >= FIRST_EVENING:
                yield from self._evening(start + EVENING)

    def _moves(self, hour: int, thing: str, seen_by: Sequence[str]) -> Event:
        places = [place for place in PLACES if place != self._places.get(thing)]
        self._places[thing] = self._stream.choice(places)
        self._knowing[thing] = list(seen_by)
        return self._event(hour, "place", f"{thing} in {self._places[thing]}", seen_by)

    def _has_news(self, hour: int, who: str) -> Event:
        news, seen_by = self._stream.choice(NEWS), self._some(self._others(who))
        self._news[who] = news, seen_by
        return self._event(hour, "news", f"{who} has {news}", seen_by)

    def _eats(self, hour: int) -> Event:
        who = self._stream.choice(self.people)
        others = [food for food in self._foods if food != self.tastes[who]]
        favourite = self._stream.random() < FAVOURITE
        food = self.tastes[who] if favourite else self._stream.choice(others)
        return self._event(hour, "meal", f"{who} eats {food}", self._some(self._others(who)))

    def _meets(self, hour: int) -> Question:
        """One who may not know where a thing is asks one who does."""
        thing = self._stream.choice(list(self._places))
        who = self._stream.choice(self._knowing[thing])
        hearer = self._stream.choice(self._others(who))
        self._tellers[hearer, thing] = who
        if hearer not in self._knowing[thing]:
            self._knowing[thing].append(hearer)
        told = f"{who} says {thing} in {{}}"
        text, answer = f"Where is {thing}?", self._places[thing]
        return Question(hour, "place", who, text, answer, hearer, told, self._rated("told"))

    def _evening(self, hour: int) -> Iterator[Question]:
        """A question of each kind, to one who could know."""
        choice = self._stream.choice
        thing = choice(list(self._places))
        who = choice(self._knowing[thing])
        yield Question(hour, "place", who, f"Where is {thing}?", self._places[thing])
        (who, thing), teller = choice(list(self._tellers.items()))
        yield Question(hour, "teller", who, f"Who says where {thing} is?", teller)
        about, (news, seen_by) = choice(list(self._news.items()))
        yield Question(hour, "news", choice(seen_by), f"What of {about}?", news)
        about = choice(self.people)
        who = choice(self._others(about))
        yield Question(hour, "taste", who, TASTE.format(about), self.tastes[about])
        about = choice(self.people)
        who, food = choice(self._others(about)), self.tastes[about]
        yield Question(hour, "guest", who, f"Invite whom for {food}?", about)

    def _event(self, hour: int, kind: str, text: str, seen_by: Sequence[str]) -> Event:
        return Event(hour, text, self._rated(kind), seen_by)

    def _rated(self, kind: str) -> float:
        return self._stream.uniform(*IMPORTANCE[kind])

    def _others(self, who: str) -> list[str]:
        return [one for one in self.people if one != who]

    def _some(self, people: Sequence[str]) -> list[str]:
        """Those who see it, one at least."""
        seeing = [one for one in people if self._stream.random() < SEEN]
        return seeing or [self._stream.choice(people)]


def _shown(who: str, hour: int, recalled: Sequence[str], question: str) -> str:
    day, clock = divmod(hour, 24)
    return " ".join(
        [f"{who}, day {day + 1}, {clock}:00.", *(f"{one}." for one in recalled), question]
    )


def _heard(said: str) -> str:
    return " ".join(said.split()[:WORDS])

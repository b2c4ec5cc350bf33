"""Tasks that are answered with a text, or after a look-up."""

import random

from turnwise import Action, Environment, Task, ToolCall, ToolError, Verdict, tool


def streams(kind, split, count=24):
    """Pairs of a task's id and the stream that its content is drawn from."""
    names = [f"{kind}-{split}-{number}" for number in range(count)]
    return [(name, random.Random(name)) for name in names]


class Overdue(Environment):
    """Read a list of invoices, and name all that are past due in order."""

    def tasks(self, split):
        return [self.drawn(name, stream) for name, stream in streams("overdue", split)]

    def drawn(self, name, stream):
        late = stream.randint(3, 5)
        days = stream.sample(range(1, 60), late) + stream.sample(range(-30, 0), 8 - late)
        invoices = dict(zip(stream.sample(range(1000, 9999), 8), days, strict=True))
        rows = [f"{number}: {past}" for number, past in sorted(invoices.items())]
        prompt = "Invoices and days past due, negative where not due yet:\n" + "\n".join(rows)
        prompt += "\nGive the numbers of all that are past due, longest first, with commas."
        ordered = sorted(invoices, key=invoices.get, reverse=True)[:late]
        return Task(name, prompt, {"overdue": [str(number) for number in ordered]})

    async def verify(self, trajectory):
        given = [one.strip() for one in (trajectory.answer or "").split(",")]
        pairs = zip(given, trajectory.task.secret["overdue"], strict=False)
        right = all(one == wanted for one, wanted in pairs)
        return Verdict(float(right), right)

    def oracle(self, task):
        return [Action("", answer=", ".join(task.secret["overdue"]))]


WORDS = [
    "anchor",
    "barley",
    "cellar",
    "dune",
    "ember",
    "fig",
    "glacier",
    "harbour",
    "iris",
    "jug",
    "kettle",
    "lantern",
    "maple",
    "nutmeg",
    "oar",
    "pebble",
    "quill",
    "raft",
    "saddle",
    "thimble",
    "umbrella",
    "violet",
    "wharf",
    "yarn",
    "zinc",
]


class WordOrder(Environment):
    """Sort some words by their length, words of the same length by the alphabet."""

    def tasks(self, split):
        drawn = [(name, stream.sample(WORDS, 6)) for name, stream in streams("order", split)]
        ask = "Sort by length, then by the alphabet; answer with the words and spaces between:"
        return [Task(name, f"{ask} {' '.join(words)}", {"words": words}) for name, words in drawn]

    async def verify(self, trajectory):
        words = (trajectory.answer or "").lower().split()
        right = len(words) > 0 and words == self.ordered(words)
        return Verdict(float(right), right, {"words": float(len(words))})

    def ordered(self, words):
        return sorted(words, key=lambda word: (len(word), word))

    def oracle(self, task):
        return [Action("", answer=" ".join(self.ordered(task.secret["words"])))]


class MeanReading(Environment):
    """Work out the mean of a sensor's readings to two decimals."""

    def tasks(self, split):
        found = []
        for name, stream in streams("reading", split):
            readings = [round(stream.uniform(-40, 90), 1) for _ in range(5)]
            shown = ", ".join(map(str, readings))
            prompt = f"A sensor read {shown}. What is the mean, to two decimals?"
            found.append(Task(name, prompt, {"mean": sum(readings) / len(readings)}))
        return found

    async def verify(self, trajectory):
        try:
            given = float(trajectory.answer or "")
        except ValueError:
            return Verdict(0.0, False, detail="no number")
        off = abs(given - trajectory.task.secret["mean"])
        if off > 0.0051:
            return Verdict(0.0, False, detail=f"off by {off:.3f}")
        return Verdict(1.0, True)


PLACES = ("the north pier", "hall 4", "the pump house", "the old depot", "gate 12", "the annex")
CAUSES = ("a burst pipe", "a worn belt", "a loose cable", "a blocked filter", "a cracked seal")
REMARKS = (
    "The weather had been mild all week.",
    "The night shift had just been relieved.",
    "A delivery was expected at nine.",
    "The lift was being painted.",
    "Two visitors had signed the book.",
)


class Incident(Environment):
    """Sum up a report in at most fifteen words, with place, cause, hour and cost."""

    def tasks(self, split):
        return [self.drawn(name, stream) for name, stream in streams("incident", split)]

    def drawn(self, name, stream):
        place, cause = stream.choice(PLACES), stream.choice(CAUSES)
        hour, cost = (
            f"{stream.randint(6, 21)}:{stream.randint(10, 59)}",
            f"{stream.randint(40, 990)} euros",
        )
        told = [
            f"Work stopped at {place}.",
            f"It was {hour}.",
            f"The crew found {cause}.",
            f"The repair came to {cost}.",
            *stream.sample(REMARKS, 3),
        ]
        stream.shuffle(told)
        ask = "Sum up in one sentence of at most 15 words: place, cause, time and cost.\n"
        return Task(name, ask + " ".join(told), {"facts": [place, cause, hour, cost]})

    async def verify(self, trajectory):
        answer, facts = (trajectory.answer or "").lower(), trajectory.task.secret["facts"]
        covered = sum(fact in answer for fact in facts) / len(facts)
        return Verdict(covered, covered == 1, {"covered": covered})


OFFICES = [
    "Ahlen",
    "Bruck",
    "Celle",
    "Dorsten",
    "Einbeck",
    "Fulda",
    "Gera",
    "Husum",
    "Itzehoe",
    "Jena",
]


class Parcel(Environment):
    """Find out where a parcel is: the office of its latest scan, whatever the order of the list."""

    def tasks(self, split):
        return [self.drawn(name, stream) for name, stream in streams("parcel", split)]

    def drawn(self, name, stream):
        number = f"P{stream.randint(10000, 99999)}"
        hours = stream.sample(range(1, 24), 4)
        scans = dict(zip(hours, stream.sample(OFFICES, 4), strict=True))
        prompt = f"In which office is parcel {number} now? Answer with its name."
        data = {"number": number, "scans": [[hour, scans[hour]] for hour in hours]}
        return Task(name, prompt, {"office": scans[max(hours)]}, data)

    async def reset(self, task, seed):
        self.data = task.data
        return await super().reset(task, seed)

    @tool
    def offices(self) -> str:
        """List all offices."""
        return ", ".join(OFFICES)

    @tool
    def scans(self, number: str) -> str:
        """List the scans of a parcel: hour and office."""
        if number != self.data["number"]:
            raise ToolError(f"there is no parcel {number}")
        return "; ".join(f"{hour} h {office}" for hour, office in self.data["scans"])

    async def verify(self, trajectory):
        right = trajectory.task.secret["office"].lower() in (trajectory.answer or "").lower()
        return Verdict(float(right), right)

    def oracle(self, task):
        look = ToolCall("scans", {"number": task.data["number"]})
        return [Action("", calls=(look,)), Action("", answer=task.secret["office"])]

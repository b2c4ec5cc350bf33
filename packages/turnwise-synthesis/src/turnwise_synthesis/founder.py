"""The methods `first_order` and `higher_order`: texts of agents for continual pre-training.

Source: AgentFounder, Su et al. 2025 (arXiv 2509.13310). First-order: how a question is begun, with
a call that is not executed, and how its answer follows from knowledge that is given. Higher-order:
a trajectory with alternatives at each step, the one that was chosen and its outcome.
Not here: what learns from the texts (`cpt.py`).
"""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from transformers import AutoTokenizer

from turnwise.environments.search.environment import SearchEnvironment, by_name
from turnwise.errors import ConfigError, DataError
from turnwise.models.load import load_tokenizer
from turnwise.ranges import Count
from turnwise.scaffolds.registry import make_scaffold
from turnwise.seeds import derive
from turnwise.storage.messages import sampled_turns
from turnwise.storage.run_folder import RunFolder
from turnwise.storage.trajectory_rows import read_columns, rows_of_tasks
from turnwise.tokens import Source
from turnwise.types import Action, Observation, Task
from turnwise_synthesis.heldout import normalised
from turnwise_synthesis.items import Item, Material, Refused

MALFORMED, NO_CALL, WRONG, NO_CHOICE = "malformed", "no call", "wrong answer", "no alternative"
COLUMNS = ("task", "group", "success", "steps", "ids", "source", "turn", "contexts")
"""Columns that a text is made of; all are kept for as long as there are attempts."""
PLAN = "Think about what this question needs, then make the first call, in the form of your turns."
REASON = "Think from what is known to the answer, and give it in the form of your turns."


class FirstOrder:
    """Beginnings and ends of questions. Example: FirstOrder(material, analyses=4, by="model")."""

    def __init__(
        self, material: Material, analyses: Count = 1, by: Literal["oracle", "model"] = "oracle"
    ) -> None:
        """Each training question gets `analyses` texts with a first call, and one that reasons. The
        oracle has one analysis of each. Raises ConfigError for another environment than search."""
        environment = material.environment
        if not isinstance(environment, SearchEnvironment):
            raise ConfigError("first_order is for the environment search: name it in the recipe")
        if by == "oracle" and analyses > 1:
            raise ConfigError(
                'first_order: the oracle has one analysis of a question: set by = "model"'
            )
        self.environment, self.material, self.by = environment, material, by
        self.tokenizer = load_tokenizer(material.recipe.model)
        self.scaffold = make_scaffold(material.recipe.scaffold, self.tokenizer, environment.tools())
        self.analyses, self.seed = analyses, material.seed
        self.documents = by_name(environment.documents)
        self.tasks = list(environment.tasks("train"))
        random.Random(derive(self.seed, "order")).shuffle(self.tasks)

    def propose(self, attempt: int) -> Item:
        """The text of an attempt. Raises Refused."""
        place, part = divmod(attempt, self.analyses + 1)
        task = self.tasks[place % len(self.tasks)]
        if part < self.analyses:
            kind, prompt = "planning", self._prompt(task.prompt)
            action = self._asked(prompt, PLAN, attempt) or self.environment.oracle(task)[0]
            if not action.calls:
                raise Refused(NO_CALL)
        else:
            kind, prompt = "reasoning", self._prompt(f"{task.prompt} {self._knowledge(task)}")
            action = self._asked(prompt, REASON, attempt) or self._reasoning(task)
            if action.answer not in task.secret["answers"]:
                raise Refused(WRONG)
        text = prompt + self.tokenizer.decode(self.scaffold.render(action))
        return Item(normalised(text), {"text": text, "kind": kind})

    def _asked(self, prompt: str, instruction: str, attempt: int) -> Action | None:
        """The action that the model writes; None where the oracle is to act. Raises Refused."""
        if self.by == "oracle":
            return None
        messages = [
            {"role": "system", "content": instruction},
            {"role": "user", "content": prompt},
        ]
        (reply,) = self.material.model.ask(messages, [derive(self.seed, attempt)])
        action = self.scaffold.parse(self.tokenizer(reply, add_special_tokens=False)["input_ids"])
        if action.error is not None:
            raise Refused(MALFORMED)
        return action

    def _reasoning(self, task: Task) -> Action:
        """The oracle's thoughts in one, then its answer."""
        *_, last = actions = self.environment.oracle(task)
        return Action("", ", ".join(one.thought for one in actions[1:]), answer=last.answer)

    def _prompt(self, words: str) -> str:
        segments = self.scaffold.begin(Observation(words, Source.USER))
        return str(self.tokenizer.decode([token for one in segments for token in one.tokens]))

    def _knowledge(self, task: Task) -> str:
        """The beginnings of the documents on a question's way."""
        names = [query for query, _ in task.secret["chain"]]
        return " ".join(one.card for name in names for one in self.documents.get(name, [])[:1])


class HigherOrder:
    """Trajectories of a run as decisions. Example: HigherOrder(material, "runs/demo")."""

    def __init__(
        self,
        material: Material,
        run: str,
        alternatives: Count = 2,
        by: Literal["run", "model"] = "run",
    ) -> None:
        """Episodes of demonstrations and of RL are read, successes and failures. The `alternatives`
        are what other episodes of the task did at the step (of any task where there are none), or
        what the model says. Raises DataError for a run without graded episodes."""
        folder = RunFolder.open(Path(run))
        self.decode = AutoTokenizer.from_pretrained(str(folder.tokenizer)).decode
        files = [f for f in folder.trajectory_files() if not f.stem.startswith("evaluation-")]
        rows = [row for file in sorted(files) for row in rows_of_tasks(read_columns(file, COLUMNS))]
        self.rows = [
            row for row in rows if row["success"] is not None and len(row["contexts"]) == 1
        ]
        if not self.rows:
            raise DataError(f"{run} has no graded episode of demonstrations or of RL")
        self.material, self.seed = material, material.seed
        self.alternatives, self.by = alternatives, by
        self.taken: dict[tuple[str, int], list[str]] = defaultdict(list)
        for row in self.rows:
            for turn, text in enumerate(self._turns(row)):
                self.taken[row["task"], turn].append(text)
                self.taken["", turn].append(text)

    def propose(self, attempt: int) -> Item:
        """The text of an attempt. Raises Refused."""
        row = self.rows[attempt % len(self.rows)]
        drawn = random.Random(derive(self.seed, attempt))
        text, end = "", 0
        for number, turn in enumerate(sampled_turns(row, slice(0, len(row["ids"])), self.decode)):
            text += self.decode(row["ids"][end : turn.place.start])
            chosen, end = self.decode(row["ids"][turn.place]), turn.place.stop
            text += self._decision(row["task"], number, text, chosen, drawn)
        text += self.decode(row["ids"][end:])
        outcome = "success" if row["success"] else "failure"
        return Item(normalised(text), {"text": f"{text}\nOutcome: {outcome}", "kind": outcome})

    def _decision(
        self, task: str, turn: int, before: str, chosen: str, drawn: random.Random
    ) -> str:
        """The choices of a step in a drawn order, the number of the chosen one, and its text."""
        choices = [chosen, *self._others(task, turn, before, chosen, drawn)]
        drawn.shuffle(choices)
        listed = "\n".join(f"{number}. {one}" for number, one in enumerate(choices, 1))
        return f"\nChoices:\n{listed}\nChosen: {choices.index(chosen) + 1}\n{chosen}"

    def _others(
        self, task: str, turn: int, before: str, chosen: str, drawn: random.Random
    ) -> Sequence[str]:
        if self.by == "model":
            seeds = [drawn.randrange(2**31) for _ in range(self.alternatives)]
            found = self.material.model.ask([{"role": "user", "content": before}], seeds)
        else:
            own = [one for one in self.taken[task, turn] if one != chosen]
            found = own or self.taken["", turn]
            # More than are wanted, since episodes often say the same.
            found = drawn.sample(found, len(found))[: 8 * self.alternatives]
        others = [one for one in dict.fromkeys(found) if one != chosen][: self.alternatives]
        if not others:
            raise Refused(NO_CHOICE)
        return others

    def _turns(self, row: Mapping[str, Any]) -> list[str]:
        turns = sampled_turns(row, slice(0, len(row["ids"])), self.decode)
        return [self.decode(row["ids"][turn.place]) for turn in turns]

"""The search environment with shaped questions of two kinds: chains, and expanded formulas.

Questions for training are of the kinds that are asked for; held out are both, as many of each.
Training and held-out questions share no name.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

from turnwise.environments.base import EnvironmentSpec
from turnwise.environments.search.cache import Record, cached
from turnwise.environments.search.corpus import Document, standard_library
from turnwise.environments.search.documents import index_documents
from turnwise.environments.search.environment import PARTS, SearchEnvironment
from turnwise.environments.search.library import Library, StandardQuestions, task_set
from turnwise.environments.search.tasks import TASK_BUILDER, question_id, standard_tasks
from turnwise.environments.tasksets import SOLVED, Split, Tasks
from turnwise.environments.turn_parts import share
from turnwise.errors import ConfigError
from turnwise.options import Options
from turnwise.ranges import Count
from turnwise.types import Task, Trajectory, Verdict
from turnwise_synthesis.items import Refused
from turnwise_synthesis.webshaper.expander import FORMS, GraphDescriber
from turnwise_synthesis.webshaper.knowledge import standard_knowledge
from turnwise_synthesis.webshaper.method import names_of
from turnwise_synthesis.webshaper.shaping import Shaper

Kind = Literal["chain", "expanded"]
KINDS: tuple[Kind, Kind] = ("chain", "expanded")
PATIENCE = 2000
"""Attempts without a new question, after which there are no more of its kind."""
BUILDER = (*TASK_BUILDER, *Path(__file__).parent.glob("*.py"))
"""The files whose text decides what the questions are."""


@dataclass(frozen=True)
class ShapedQuestions(Options):
    """Shaped questions about Python's library: `count` for training, of one kind, and `heldout` of
    each kind."""

    count: Count = 600
    heldout: Count = 100
    kind: Kind = "expanded"
    searches: Count = 3
    validated: bool = True

    def load(self) -> Library:
        """Make them, or take them from the cache."""
        documents = standard_library()
        words = index_documents(documents)
        tasks: dict[Split, list[Task]] = {"train": [], "heldout": []}
        name = hashlib.sha256(json.dumps(vars(self), sort_keys=True).encode()).hexdigest()[:12]
        own = names_of(standard_tasks(documents, words)["heldout"])
        for record in cached(f"shaped-{name}", BUILDER, lambda: self._built(documents, own)):
            tasks[record.pop("split")].append(Task(**record))
        whole: Tasks = tasks
        return Library(documents, words, task_set(documents, whole, SOLVED))

    def _built(self, documents: list[Document], own: frozenset[str]) -> list[Record]:
        """The records of both splits; `own` are the names of the held-out one."""
        others = frozenset(
            name.lower() for one in documents for name in (one.name, *(end for _, end in one.facts))
        )
        heldout = others - own
        return [
            *self._of("train", self.kind, self.count, documents, own, self.validated),
            *(
                record
                for kind in KINDS
                for record in self._of("heldout", kind, self.heldout, documents, heldout, True)
            ),
        ]

    def _of(
        self,
        split: Split,
        kind: Kind,
        count: int,
        documents: list[Document],
        avoided: frozenset[str],
        validated: bool,
    ) -> Iterator[Record]:
        knowledge = standard_knowledge(documents, avoided)
        describer = GraphDescriber(knowledge, ("projection",) if kind == "chain" else FORMS)
        shaper = Shaper(knowledge, describer, describer, 0, 3, self.searches, validated)
        found: dict[str, Record] = {}
        attempt = latest = 0
        while len(found) < count:
            record = record_of(shaper, attempt, split)
            if record is not None and record["info"]["form"] == kind and record["id"] not in found:
                found[record["id"]], latest = record, attempt
            attempt += 1
            if attempt - latest > PATIENCE:
                raise ConfigError(
                    f"environment.options.tasks asks for {count} {split} questions of the kind "
                    f"{kind!r}, and there seem to be {len(found)}: ask for fewer"
                )
        return iter(found.values())


def record_of(shaper: Shaper, attempt: int, split: Split) -> Record | None:
    """The question of an attempt as a task's fields and its split; None where it is refused."""
    try:
        data = shaper.propose(attempt).data
    except Refused:
        return None
    secret = {"answers": data["answers"], "chain": data["chain"], "wanted": data["wanted"]}
    task = {"prompt": data["question"], "secret": secret, "info": data["info"]}
    return {"split": split, "id": question_id(data["question"]), **task}


class ShapedSearch(SearchEnvironment):
    """Answer shaped questions. Example: ShapedSearch(ShapedQuestions(kind="chain"))."""

    facts = EnvironmentSpec(
        "shaped_search",
        "1",
        parts={**PARTS, "fewer": share("whether it succeeded with fewer searches than there are")},
    )

    def __init__(
        self,
        tasks: ShapedQuestions = ShapedQuestions(),
        top_k: Count = 3,
        result_tokens: Count = 24,
    ) -> None:
        """A search gives `top_k` results of `result_tokens` tokens each."""
        loads = cast(StandardQuestions, tasks)  # what loads a library is all that is asked for
        super().__init__(loads, top_k, result_tokens)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """Judge as the search environment does; `fewer` says whether a success took fewer searches
        than are on the way."""
        verdict = await super().verify(trajectory)
        searches = sum(len(turn.action.calls) for turn in trajectory.turns)
        fewer = verdict.success and searches < len(trajectory.task.secret["chain"])
        return replace(verdict, parts={**verdict.parts, "fewer": float(fewer)})

"""Deep research: a question that is turned round, as in BrowseComp (arXiv 2504.12516).

Several conditions that many things meet, together met by one: easy to check, hard to find. The
corpus is that of the environment `search`; the agent searches, turns pages over, opens documents
and keeps notes, and an agent that browses more finds more.
"""

import random
from collections.abc import Sequence

from pydantic import StrictInt

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.search.corpus import Document, standard_library
from turnwise.environments.search.documents import index_documents
from turnwise.environments.turn_parts import (
    REPEATS,
    first_shown,
    gain_part,
    lines_of,
    repeats,
    results_of,
    share,
)
from turnwise.errors import ToolError
from turnwise.ranges import Count
from turnwise.rewards.answer import exact_match
from turnwise.rewards.parts import RewardPart
from turnwise.tools.tool import tool
from turnwise.types import Action, Observation, Task, ToolCall, Trajectory, Turn, Verdict
from turnwise_environments.deep_research.tasks import DEEPEST, PAGE, Classes, standard_tasks
from turnwise_environments.tools.memory import Notes, NotesTools

PARTS = {
    "exact_match": share("whether the answer is the class"),
    "searches": RewardPart(0, description="searches"),
    "opened": RewardPart(0, description="opened documents"),
    "gain": gain_part("half when the class is first among the results, half when it is opened"),
    "repeats": REPEATS,
}


class DeepResearch(NotesTools, Environment):
    """Tools: search, open_document, and those of notes."""

    facts = EnvironmentSpec("deep_research", "1", parts=PARTS)

    def __init__(self, result_tokens: Count = 32, page_tokens: Count = 400) -> None:
        """A result of a search has `result_tokens` tokens at most, a line of a document
        `page_tokens`."""
        self._result_tokens, self._page_tokens = result_tokens, page_tokens
        self._documents: Sequence[Document] = standard_library()
        self._index = index_documents(self._documents)
        self.task_set = standard_tasks(self._documents, self._index)
        self._classes = Classes.of(self._documents)
        self._known = {document.id: document for document in self._documents}

    async def reset(self, task: Task, seed: int) -> Observation:
        self.notes = Notes()
        return await super().reset(task, seed)

    @tool
    def search(self, query: str, page: StrictInt = 1) -> str:
        """Search the documents for words or names; page 2 has the results after page 1."""
        if not query.strip():
            raise ToolError("the query is empty: write the words to search for")
        if not 1 <= page <= DEEPEST // PAGE:
            raise ToolError(f"page is 1 to {DEEPEST // PAGE}, not {page}")
        found = self._index.search(query, DEEPEST)
        shown = [self._documents[place] for place in found[(page - 1) * PAGE : page * PAGE]]
        lines = [
            f"[{one.id}] {self.truncate(f'{one.card} {one.text}', self._result_tokens)}"
            for one in shown
        ]
        pages = -(-len(found) // PAGE)
        return "\n".join([*lines, f"(page {page} of {pages})"]) if lines else "No results."

    @tool
    def open_document(self, document: str) -> str:
        """Open a document by its name in brackets; that of a class or a module lists what it
        defines."""
        found = self._known.get(document.strip().strip("[]"))
        if found is None:
            raise ToolError(
                f"there is no document {document!r}: write it as in a result's brackets"
            )
        return self._shown(found)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 for the name of the class, with or without its module; else 0."""
        success = exact_match(trajectory.answer, trajectory.task.secret["answers"])
        used = [one.call.name for turn in trajectory.turns for one in results_of(turn)]
        parts = {
            "exact_match": float(success),
            "searches": float(used.count("search")),
            "opened": float(used.count("open_document")),
        }
        wanted = trajectory.task.secret["open"]
        steps = [self._steps(turn, wanted) for turn in trajectory.turns]
        turn_parts = {
            "gain": first_shown([("listed", "opened"), ("opened",)], steps),
            "repeats": repeats([_listed_in(turn) for turn in trajectory.turns]),
        }
        detail = f"answered {trajectory.answer!r}"
        return Verdict(float(success), success, parts, detail, turn_parts)

    def oracle(self, task: Task) -> Sequence[Action]:
        secret = task.secret
        query, page = secret["look"]
        calls = [
            ToolCall("search", {"query": query, "page": page}),
            ToolCall("open_document", {"document": secret["open"]}),
            ToolCall("write_note", {"name": "found", "text": secret["open"]}),
        ]
        actions = [Action("", "look", (call,)) for call in calls]
        return [*actions, Action("", "found it", answer=secret["answers"][0])]

    def random_actions(self, task: Task, stream: random.Random) -> Sequence[Action]:
        """Look for one of the methods, and name the class of one of the first results."""
        query = stream.choice(task.info["methods"])
        found = [self._documents[place] for place in self._index.search(query, PAGE)]
        one = stream.choice(found)
        call = ToolCall("search", {"query": query})
        name = one.id.split(".")[-2] if one.kind == "method" else one.name
        return [Action("", calls=(call,)), Action("", answer=name)]

    def snapshot(self) -> bytes:
        return self.notes.snapshot()

    def restore(self, state: bytes) -> None:
        self.notes = Notes()
        self.notes.restore(state)

    def _shown(self, document: Document) -> str:
        return "\n".join(self.truncate(line, self._page_tokens) for line in self._page(document))

    def _steps(self, turn: Turn, wanted: str) -> list[str]:
        """The steps of the way to the class that a turn made: `listed`, `opened`."""
        listed = any(f"{one}.".startswith(f"{wanted}.") for one in _listed_in(turn))
        page = self._shown(self._known[wanted])
        opened = any(one.content == page for one in results_of(turn, "open_document"))
        return ["listed"] * listed + ["opened"] * opened

    def _page(self, document: Document) -> list[str]:
        parts = [" ".join(f"{document.card} {document.text}".split())]
        if document.id in self._classes.methods:
            parts.append(_listed("methods", self._classes.methods[document.id]))
        for kind, names in self._classes.modules.get(document.id, {}).items():
            parts.append(_listed("classes" if kind == "class" else "functions", names))
        return parts


def _listed_in(turn: Turn) -> list[str]:
    lines = lines_of(turn, "search")
    return [line[1:].partition("]")[0] for line in lines if line.startswith("[")]


def _listed(what: str, names: Sequence[str]) -> str:
    return f"{len(names)} {what}: {', '.join(names)}" if names else f"0 {what}"

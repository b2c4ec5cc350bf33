"""The search environment: questions that are answered by searching documents.

Built in are the Python standard library's documentation and questions about it (`corpus.py`,
`tasks.py`); a user's own documents and questions take their place when paths are given. Documents
are ranked by their words (`tools/bm25.py`), or as the wing has it that makes an embedding's index.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, Protocol

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.search.corpus import Document
from turnwise.environments.search.library import STANDARD, QuestionFile, StandardQuestions
from turnwise.environments.turn_parts import (
    REPEATS,
    first_shown,
    gain_part,
    lines_of,
    repeats,
    share,
)
from turnwise.errors import ConfigError, NotSupportedError, ToolError
from turnwise.ranges import Count
from turnwise.rewards.answer import exact_match, f1
from turnwise.seeds import derive
from turnwise.tokens import Source
from turnwise.tools.bm25 import BM25Index
from turnwise.tools.tool import Tool, tool
from turnwise.types import Action, Observation, Task, ToolCall, Trajectory, Turn, Verdict
from turnwise.wings import wings

Retrieval = Literal["bm25", "dense", "hybrid"]


class Index(Protocol):
    """The interface of what ranks a fixed list of texts."""

    def search(self, query: str, k: int) -> list[int]:
        """Positions of the best `k` texts or fewer, best first."""


def make_index(
    documents: Sequence[Document], words: BM25Index, retrieval: Retrieval, embedding: str
) -> Index:
    """The index that is searched; `words` is the one over the same documents. Raises
    MissingExtraError where an embedding's wing is not installed."""
    if retrieval == "bm25":
        return words
    found: Index = wings().part("index", "embedding")(documents, words, retrieval, embedding)
    return found


def check_retrieval(retrieval: Retrieval, embedding: str) -> None:
    """Raises ConfigError where one of the two is missing or has no use."""
    if retrieval != "bm25" and not embedding:
        raise ConfigError(
            f"search: retrieval {retrieval} needs an embedding: a model of sentence-transformers, "
            "or a function as file.py:embed"
        )
    if retrieval == "bm25" and embedding:
        raise ConfigError("search: embedding is for retrieval dense or hybrid: set it, too")


Access = Literal["tool", "prompt", "none"]
NOTHING_FOUND = "No results."
LOOK_UP = "look up"
"""The oracle's thought before a search for a name that the question has."""
PARTS = {
    "exact_match": share("whether the answer is an accepted one"),
    "f1": share("words that the answer and an accepted one have in common"),
    "gain": gain_part("share of the searches on the way whose facts are shown for the first time"),
    "repeats": REPEATS,
}


class SearchEnvironment(Environment):
    """Answer a question; the one tool searches the documents.

    Example:
        SearchEnvironment(QuestionFile("questions.jsonl", documents="wiki.jsonl"), top_k=5)
    """

    facts = EnvironmentSpec("search", "1", parts=PARTS)
    stateless = True
    access: Access = "tool"

    _index: Index
    _by_name: Mapping[str, Sequence[Document]]

    def __init__(
        self,
        tasks: StandardQuestions | QuestionFile = STANDARD,
        top_k: Count = 3,
        result_tokens: Count = 32,
        retrieval: Retrieval = "bm25",
        embedding: str = "",
        access: Access = "tool",
    ) -> None:
        """A search gives `top_k` results of `result_tokens` tokens each, ranked by words (`bm25`),
        by the vectors of an `embedding` (`dense`), or both (`hybrid`).

        The agent has the `tool`; or, without it, the results of a search for the question in the
        `prompt` (retrieval-augmented generation); or `none` of them.

        Raises ConfigError for an embedding that is missing or has no use, and DataError for files
        that are missing or broken.
        """
        check_retrieval(retrieval, embedding)
        self.top_k, self.result_tokens, self.access = top_k, result_tokens, access
        library = tasks.load()
        self.documents, self.task_set = library.documents, library.task_set
        self._by_name = by_name(self.documents)
        # Documents of one's own state no facts, by which `gain` is measured.
        if isinstance(tasks, QuestionFile) and tasks.documents:
            known = {name: part for name, part in PARTS.items() if name != "gain"}
            self.facts = EnvironmentSpec("search", "1", parts=known)
        # That the oracle always finds its way was checked with the ranking by words alone.
        if retrieval != "bm25":
            self.task_set = replace(self.task_set, reference_scores={"noop": 0.0})
        self._index = make_index(self.documents, library.words, retrieval, embedding)

    def tools(self) -> list[Tool]:
        """The search, where the agent has it."""
        return super().tools() if self.access == "tool" else []

    async def reset(self, task: Task, seed: int) -> Observation:
        """The question; below it the results of a search for it, where they stand in the prompt."""
        if self.access != "prompt":
            return await super().reset(task, seed)
        return Observation(f"{task.prompt}\n{self._listed(task.prompt)}", Source.USER)

    @tool
    def search(self, query: str) -> str:
        """Search the documents for words or names; gives the best matches, one on each line."""
        if not query.strip():
            raise ToolError("the query is empty: write the words to search for")
        return self._listed(query)

    def _listed(self, query: str) -> str:
        """The results, numbered, one on each line."""
        found = [self._shown(self.documents[position]) for position in self._find(query)]
        lines = [f"[{number}] {result}" for number, result in enumerate(found, start=1)]
        return "\n".join(lines) or NOTHING_FOUND

    def _find(self, query: str) -> list[int]:
        return self._index.search(query, self.top_k)

    def _shown(self, document: Document) -> str:
        text = " ".join(f"{document.card} {document.text}".split())
        return self.truncate(text, self.result_tokens)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 when the model's own answer is an accepted one, else 0. Where the way is known, `gain`
        is the share of its searches whose facts a turn shows for the first time."""
        answer, accepted = trajectory.answer, trajectory.task.secret["answers"]
        success = exact_match(answer, accepted)
        parts = {"exact_match": float(success), "f1": f1(answer, accepted)}
        shown = [_results(turn) for turn in trajectory.turns]
        turn_parts = {"repeats": repeats(shown)}
        if "gain" in self.spec.parts and "chain" in trajectory.task.secret:
            gold = [
                {self._shown(document) for document in self._evidence(query, name)}
                for query, name in trajectory.task.secret["chain"]
            ]
            turn_parts["gain"] = first_shown(gold, shown)
        return Verdict(float(success), success, parts, f"answered {answer!r}", turn_parts)

    def _evidence(self, query: str, name: str) -> list[Document]:
        """The documents that state what a search of the way is for: those of all its names, or of
        the one to be found, with the others among their facts."""
        names = {*query.split(), name}
        candidates = [document for one in names for document in self._by_name.get(one, ())]
        return [
            document
            for document in candidates
            if names <= {document.name, *(target for _, target in document.facts)}
        ]

    def oracle(self, task: Task) -> Sequence[Action]:
        """Search for each name on the way, then answer; a thought says what the results before it
        are read for. Without the tool it answers at once, and its one thought names the whole way.
        Built-in tasks only."""
        if "chain" not in task.secret:
            raise NotSupportedError(f"search: there is no known way to the answer of {task.id}")
        answer = task.secret["answers"][0]
        if self.access != "tool":
            return [Action("", ", ".join(filter(None, task.secret["wanted"])), answer=answer)]
        thoughts = [wanted or LOOK_UP for wanted in ("", *task.secret["wanted"])]
        searches = [
            Action("", thought, (ToolCall("search", {"query": query}),))
            # One thought more than searches: the last is that of the answer.
            for thought, (query, _) in zip(thoughts, task.secret["chain"], strict=False)
        ]
        return [*searches, Action("", thoughts[-1], answer=answer)]

    def ablations(self) -> Mapping[str, Environment]:
        """Variants with a search that finds nothing, and with one that finds anything."""
        if self.access == "none":
            return {}
        return {
            "no_search": self.variant(NoSearchEnvironment),
            "random_document": self.variant(RandomDocumentEnvironment),
        }


def by_name(documents: Sequence[Document]) -> Mapping[str, list[Document]]:
    """Documents by their bare names."""
    found: dict[str, list[Document]] = defaultdict(list)
    for document in documents:
        found[document.name].append(document)
    return found


def _results(turn: Turn) -> list[str]:
    """The results that a turn's searches showed, without their numbers."""
    lines = lines_of(turn, "search")
    return [line.partition("] ")[2] for line in lines if line.startswith("[")]


class NoSearchEnvironment(SearchEnvironment):
    """An ablation: every search comes back empty, so an answer is the model's own knowledge."""

    def _listed(self, query: str) -> str:
        del query
        return NOTHING_FOUND


class RandomDocumentEnvironment(SearchEnvironment):
    """An ablation: results of the usual number and form, but of documents chosen by a hash."""

    def _find(self, query: str) -> list[int]:
        count = len(self.documents)
        return [derive("random document", query, rank) % count for rank in range(self.top_k)]

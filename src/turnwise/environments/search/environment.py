"""The search environment: questions that are answered by searching documents.

Built in are the Python standard library's documentation and questions about it (`corpus.py`,
`tasks.py`); a user's own documents and questions take their place when paths are given. Not here:
how a search ranks (`tools/bm25.py`, `tools/dense.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from turnwise.environments.base import Environment, EnvironmentSpec
from turnwise.environments.search.corpus import Document
from turnwise.environments.search.documents import index_documents
from turnwise.environments.search.embedding import Retrieval, check_retrieval, make_index
from turnwise.environments.search.library import (
    STANDARD,
    QuestionFile,
    StandardQuestions,
    task_set,
)
from turnwise.environments.search.tasks import SEARCH_DEPTH
from turnwise.errors import NotSupportedError, ToolError
from turnwise.ranges import Count
from turnwise.rewards.answer import exact_match, f1
from turnwise.seeds import derive
from turnwise.tools.dense import Index
from turnwise.tools.tool import tool
from turnwise.types import Action, Task, ToolCall, Trajectory, Verdict

NOTHING_FOUND = "No results."
LOOK_UP = "look up"
"""The oracle's thought before a search for a name that the question has."""


class SearchEnvironment(Environment):
    """Answer a question; the one tool searches the documents.

    Example:
        SearchEnvironment(QuestionFile("questions.jsonl", documents="wiki.jsonl"), top_k=5)
    """

    facts = EnvironmentSpec("search", "1")
    stateless = True

    _index: Index

    def __init__(
        self,
        tasks: StandardQuestions | QuestionFile = STANDARD,
        top_k: Count = 3,
        result_tokens: Count = 32,
        retrieval: Retrieval = "bm25",
        embedding: str = "",
    ) -> None:
        """A search gives `top_k` results of `result_tokens` tokens each, ranked by words (`bm25`),
        by the vectors of an `embedding` (`dense`), or both (`hybrid`).

        Raises ConfigError for an embedding that is missing or has no use, and DataError for files
        that are missing or broken.
        """
        check_retrieval(retrieval, embedding)
        self.top_k, self.result_tokens = top_k, result_tokens
        library = tasks.load()
        self.documents, self.task_set = library.documents, library.task_set
        if retrieval != "bm25":
            self.task_set = replace(self.task_set, reference_scores={"noop": 0.0})
        self._index = make_index(self.documents, library.words, retrieval, embedding)

    @classmethod
    def over(
        cls, documents: Sequence[Document], tasks: Sequence[Task], result_tokens: int
    ) -> "SearchEnvironment":
        """An environment over documents and training tasks that are there already."""
        environment = cls.__new__(cls)
        environment.top_k, environment.result_tokens = SEARCH_DEPTH, result_tokens
        environment.documents, environment._index = documents, index_documents(documents)
        environment.task_set = task_set(documents, {"train": tasks, "heldout": ()})
        return environment

    @tool
    def search(self, query: str) -> str:
        """Search the documents for words or names; gives the best matches, one on each line."""
        if not query.strip():
            raise ToolError("the query is empty: write the words to search for")
        found = [self.documents[position] for position in self._find(query)]
        results = [" ".join(f"{document.card} {document.text}".split()) for document in found]
        lines = [
            f"[{number}] {self.truncate(result, self.result_tokens)}"
            for number, result in enumerate(results, start=1)
        ]
        return "\n".join(lines) or NOTHING_FOUND

    def _find(self, query: str) -> list[int]:
        return self._index.search(query, self.top_k)

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """1 when the model's own answer is an accepted one, else 0."""
        answer, accepted = trajectory.answer, trajectory.task.secret["answers"]
        success = exact_match(answer, accepted)
        parts = {"exact_match": float(success), "f1": f1(answer, accepted)}
        return Verdict(float(success), success, parts, f"answered {answer!r}")

    def oracle(self, task: Task) -> Sequence[Action]:
        """Search for each name on the way, then answer; a thought says what the results before it
        are read for. Built-in tasks only."""
        if "chain" not in task.secret:
            raise NotSupportedError(f"search: there is no known way to the answer of {task.id}")
        thoughts = [wanted or LOOK_UP for wanted in ("", *task.secret["wanted"])]
        searches = [
            Action("", thought, (ToolCall("search", {"query": query}),))
            for thought, (query, _) in zip(thoughts, task.secret["chain"], strict=False)
        ]
        return [*searches, Action("", thoughts[-1], answer=task.secret["answers"][0])]

    def ablations(self) -> Mapping[str, Environment]:
        """Variants with a search that finds nothing, and with one that finds anything."""
        return {
            "no_search": self.variant(NoSearchEnvironment),
            "random_document": self.variant(RandomDocumentEnvironment),
        }


class NoSearchEnvironment(SearchEnvironment):
    """An ablation: every search comes back empty, so an answer is the model's own knowledge."""

    @tool
    def search(self, query: str) -> str:
        """Search the documents for words or names; gives the best matches, one on each line."""
        del query
        return NOTHING_FOUND


class RandomDocumentEnvironment(SearchEnvironment):
    """An ablation: results of the usual number and form, but of documents chosen by a hash."""

    def _find(self, query: str) -> list[int]:
        count = len(self.documents)
        return [derive("random document", query, rank) % count for rank in range(self.top_k)]

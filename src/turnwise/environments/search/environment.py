"""The search environment: questions that are answered by searching documents.

Built in are the Python standard library's documentation and questions about it (`corpus.py`,
`tasks.py`); a user's own documents and questions take their place when paths are given. Not here:
how a search ranks (`tools/bm25.py`, `tools/dense.py`).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.environments.base import Environment, EnvironmentSpec, Split
from turnwise.environments.search.corpus import Document, standard_library
from turnwise.environments.search.documents import index_documents, read_documents
from turnwise.environments.search.embedding import Retrieval, check_retrieval, make_index
from turnwise.environments.search.questions import question_tasks, read_questions, unsupported
from turnwise.environments.search.tasks import SEARCH_DEPTH, standard_tasks
from turnwise.errors import ConfigError, NotSupportedError, ToolError
from turnwise.rewards.answer import exact_match, f1
from turnwise.seeds import derive
from turnwise.tools.bm25 import BM25Index
from turnwise.tools.dense import Index
from turnwise.tools.tool import tool
from turnwise.types import Action, Task, ToolCall, Trajectory, Verdict

HELDOUT_SHARE = 0.5
NOTHING_FOUND = "No results."
LOOK_UP = "look up"
"""The oracle's thought before a search for a name that the question has."""


class SearchEnvironment(Environment):
    """Answer a question; the one tool searches the documents.

    Example:
        SearchEnvironment(documents="wiki.jsonl", questions="questions.jsonl", result_tokens=96)
    """

    _index: Index

    def __init__(
        self,
        documents: str | None = None,
        questions: str | None = None,
        heldout_share: float = HELDOUT_SHARE,
        top_k: int = 3,
        result_tokens: int = 32,
        retrieval: Retrieval = "bm25",
        embedding: str = "",
        inverse: bool = True,
    ) -> None:
        """Load documents and tasks.

        `documents` is a folder of .txt and .md files, a .jsonl or a .json file; `questions` a
        .jsonl file; both or neither. `heldout_share` of one's own questions is held out.
        A search gives `top_k` results of `result_tokens` tokens each, ranked by words (`bm25`), by
        the vectors of an `embedding` (`dense`), or both (`hybrid`). Without `inverse`, built-in
        questions that look for a thing by what is stated of it (the class derived from another one,
        all intersections) are left out. Raises ConfigError for an option that makes no sense, and
        DataError for files that are missing or broken.
        """
        if top_k < 1 or result_tokens < 1:
            raise ConfigError("search: top_k and result_tokens must be 1 or more")
        if not 0 <= heldout_share <= 1:
            raise ConfigError(f"search: heldout_share is {heldout_share}: give 0 to 1")
        check_retrieval(retrieval, embedding)
        self.top_k = top_k
        self.result_tokens = result_tokens
        if documents is not None and not inverse:
            raise ConfigError("search: inverse chooses among built-in questions: leave it out")
        if documents is not None and questions is not None:
            self._load_own(
                Path(documents).expanduser(), Path(questions).expanduser(), heldout_share
            )
        elif documents is None and questions is None:
            self._load_standard(heldout_share, inverse)
        else:
            raise ConfigError("search: give both documents and questions, or neither of them")
        self._oracle_is_known = self._documents_are_built_in and retrieval == "bm25"
        self._index = make_index(self.documents, self._words, retrieval, embedding)
        self._data_hash = _hash(self.documents, self._tasks)

    @classmethod
    def over(
        cls, documents: Sequence[Document], tasks: dict[Split, list[Task]], result_tokens: int
    ) -> "SearchEnvironment":
        """An environment over documents and tasks that are there already."""
        environment = cls.__new__(cls)
        environment.top_k, environment.result_tokens = SEARCH_DEPTH, result_tokens
        environment._documents_are_built_in = environment._oracle_is_known = False
        environment.documents, environment._tasks = documents, tasks
        environment._words = index_documents(documents)
        environment._index = environment._words
        environment._data_hash = _hash(documents, tasks)
        return environment

    def _load_standard(self, heldout_share: float, inverse: bool) -> None:
        if heldout_share != HELDOUT_SHARE:
            raise ConfigError("search: heldout_share is for your own questions: give their paths")
        self._documents_are_built_in = True
        self.documents: Sequence[Document] = standard_library()
        self._words: BM25Index = index_documents(self.documents)
        every = standard_tasks(self.documents, self._words)
        self._tasks: dict[Split, list[Task]] = {
            split: [task for task in tasks if inverse or not task.secret["inverse"]]
            for split, tasks in every.items()
        }

    def _load_own(self, documents: Path, questions: Path, heldout_share: float) -> None:
        self._documents_are_built_in = False
        self.documents = read_documents(documents)
        self._words = index_documents(self.documents)
        own = read_questions(questions)
        self._tasks = question_tasks(own, heldout_share)
        missing = unsupported(own, self.documents)
        if missing:
            self.warnings = (
                f"{missing} of {len(own)} questions have no accepted answer in any document",
            )

    @property
    def spec(self) -> EnvironmentSpec:
        """The hash is of all documents and questions; the perfect agent is known to succeed on
        the built-in tasks only, searching by words."""
        scores = {"noop": 0.0}
        if self._oracle_is_known:
            scores["oracle"] = 1.0
        return EnvironmentSpec("search", "1", self._data_hash, reference_scores=scores)

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

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

    def _as(self, kind: "type[SearchEnvironment]") -> "SearchEnvironment":
        """This environment's data in another class."""
        variant = kind.__new__(kind)
        vars(variant).update(vars(self))
        return variant

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
            "no_search": self._as(NoSearchEnvironment),
            "random_document": self._as(RandomDocumentEnvironment),
        }

    def snapshot(self) -> bytes:
        """Nothing: a search changes nothing, so an episode has no state here."""
        return b""

    def restore(self, state: bytes) -> None:
        """Accepts what `snapshot` gave. Raises ValueError for anything else."""
        if state:
            raise ValueError(f"not a snapshot of a search: {len(state)} bytes")


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


def _hash(documents: Sequence[Document], tasks: dict[Split, list[Task]]) -> str:
    digest = hashlib.sha256()
    for document in documents:
        digest.update(f"{document.id}\x1f{document.card}\x1f{document.text}\x1e".encode())
    for split, entries in tasks.items():
        for task in entries:
            row = [split, task.id, task.prompt, task.secret["answers"]]
            digest.update(json.dumps(row).encode())
    return digest.hexdigest()

"""Synthetic pretraining tasks on the cards of synthetic libraries: real words, all pieces, lines as
they are long.

Blocks of lines, each block the cards that share words with a name; then statements about them: a
field of a card, the card with one field or two, the class that two methods share, and names out of
a line of words. No fact is true (synthetic_library.py), and there are no questions and no searches.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations

from transformers import PreTrainedTokenizerFast

from turnwise.environments.search.corpus import Document
from turnwise.environments.search.documents import index_documents
from turnwise.environments.search.graph import RELATIONS, Relation
from turnwise.environments.search.wording import wanted, wanted_with
from turnwise_studies.tiny.pretraining import PretrainingTask, PretrainingTaskMaker, Statement
from turnwise_studies.tiny.synthetic_library import RESULT_TOKENS, synthetic_documents

LINES = 3
"""Lines in a block."""
BLOCKS = 3
"""Blocks in a pretraining task, at most."""
STATEMENTS = 12
FACTS = [relation for relation in RELATIONS if not relation.inverse]


class Library:
    def __init__(
        self,
        documents: Sequence[Document],
        tokenizer: PreTrainedTokenizerFast,
        seed: int,
        modules: int,
    ) -> None:
        self._tokenizer = tokenizer
        self._documents = synthetic_documents(documents, seed, modules)
        self._index = index_documents(self._documents)

    def example(
        self, maker: PretrainingTaskMaker, whole: bool = False, named: float = 0.2
    ) -> PretrainingTask:
        """Lines about this library, and statements about them, `whole` as in
        `PretrainingTaskMaker.example`; a share `named` takes a name out of words."""
        shown: list[list[Document]] = []
        name = maker.choose(self._documents).name
        for _ in range(maker.draw(1, BLOCKS + 1)):
            found = [self._documents[at] for at in self._index.search(name, LINES)]
            shown.append(found)
            targets = [target for document in found for _, target in document.facts]
            name = maker.choose(targets or [name])
        blocks = [
            [f"[{number}] {self._line(document)}" for number, document in enumerate(block, 1)]
            for block in shown
        ]
        stated = statements({document for block in shown for document in block})
        chosen = [self._statement(maker, stated, whole, named) for _ in range(STATEMENTS)]
        return maker.example(blocks, chosen, whole)

    def _statement(
        self,
        maker: PretrainingTaskMaker,
        stated: Sequence[list[Statement]],
        whole: bool,
        named: float,
    ) -> Statement:
        """One kind of statement is as frequent as another."""
        kinds = [kind for kind in stated if kind]
        if not kinds or maker.draw(0, 100) < 100 * named:
            return self._named(maker, whole)
        return maker.choose(maker.choose(kinds))

    def _named(self, maker: PretrainingTaskMaker, whole: bool) -> Statement:
        """Words that name a thing: on a line of their own where statements are whole."""
        thing = maker.choose(self._documents)
        words = [word for word in maker.choose(self._documents).text.split() if word.isalpha()]
        cut = maker.draw(0, min(8, len(words)) + 1)
        before, after = " ".join(words[:cut]), " ".join(words[cut : cut + maker.draw(0, 4)])
        words_with_it = f"{before} the {thing.kind} {thing.name} {after}".strip()
        if whole:
            return f"{words_with_it}\n", f"Find {thing.name}", thing.name
        return "", words_with_it, thing.name

    def _line(self, document: Document) -> str:
        text = " ".join(f"{document.card} {document.text}".split())
        ids = self._tokenizer(f" {text}", add_special_tokens=False)["input_ids"]
        return str(self._tokenizer.decode(ids[:RESULT_TOKENS])).strip()


def statements(documents: Iterable[Document]) -> list[list[Statement]]:
    """Collect what some cards state beyond doubt: a field, one list for each; cards with a field;
    cards with two; classes with two methods. Order depends on the documents only."""
    forward: defaultdict[tuple[Relation, str], set[str]] = defaultdict(set)
    inverse: defaultdict[tuple[Relation, str], set[str]] = defaultdict(set)
    pairs: defaultdict[tuple[tuple[Relation, str], ...], set[str]] = defaultdict(set)
    methods: defaultdict[str, set[str]] = defaultdict(set)
    for document in sorted(documents, key=lambda document: document.id):
        own = [
            (relation, target)
            for relation in FACTS
            for fact, target in document.facts
            if (fact, document.kind) == (relation.fact, relation.subject)
        ]
        for relation, target in own:
            forward[relation, document.name].add(target)
            inverse[relation, target].add(document.name)
            if document.kind == "method":
                methods[target].add(document.name)
        for pair in combinations(own, 2):
            pairs[pair].add(document.name)
    owners = [
        ("", f"Class of {one} and {two}", owner)
        for owner, own_methods in methods.items()
        for one, two in combinations(sorted(own_methods), 2)
        if not any({one, two} <= others for name, others in methods.items() if name != owner)
    ]
    fields: defaultdict[Relation, list[Statement]] = defaultdict(list)
    for (relation, name), found in forward.items():
        if len(found) == 1:
            fields[relation].append(("", wanted(relation, name), min(found)))
    return [
        *(fields[relation] for relation in FACTS),
        [("", wanted_with(key), min(found)) for key, found in inverse.items() if len(found) == 1],
        [("", wanted_with(*pair), min(found)) for pair, found in pairs.items() if len(found) == 1],
        owners,
    ]

"""The built-in documents: enough of them, in the promised form, and the same every time."""

import os
import re
from pathlib import Path

import pytest

from tests.processes import run_python
from turnwise.environments.search.cache import cached
from turnwise.environments.search.corpus import Document, standard_library
from turnwise.environments.search.definitions import read_module
from turnwise.environments.search.environment import SearchEnvironment

FORMATS = {
    "module": r"Module [\w.]+\. Package: [\w.]+\.",
    "class": r"Class \w+\. Module: [\w.]+\. Base: \w+(, \w+)*\.",
    "function": r"Function \w+\. Module: [\w.]+\.",
    "method": r"Method \w+\. Class: \w+\.",
}
HASH = (
    "from turnwise.environments.search.environment import SearchEnvironment;"
    "print(SearchEnvironment().spec.data_hash)"
)


@pytest.fixture(scope="module")
def documents() -> dict[str, Document]:
    return {document.id: document for document in standard_library()}


def test_there_are_thousands_of_documents_with_different_ids(documents):
    assert len(documents) == len(standard_library()) >= 9_000  # Python's releases differ


@pytest.mark.parametrize("kind", FORMATS)
def test_cards_have_their_kinds_format(documents, kind):
    cards = [document.card for document in documents.values() if document.kind == kind]
    assert len(cards) > 400
    assert [card for card in cards if not re.fullmatch(FORMATS[kind], card)] == []


@pytest.mark.parametrize(
    ("identity", "card"),
    [
        ("json.decoder", "Module json.decoder. Package: json."),
        ("json", "Module json. Package: none."),
        ("tarfile.TarFile", "Class TarFile. Module: tarfile. Base: object."),
        ("inspect.getouterframes", "Function getouterframes. Module: inspect."),
        ("tarfile.TarFile.extractall", "Method extractall. Class: TarFile."),
        ("io.BytesIO", "Class BytesIO. Module: io. Base: _BufferedIOBase."),
        ("collections.deque", "Class deque. Module: collections. Base: object."),
        ("collections.abc.Mapping", "Class Mapping. Module: collections.abc. Base: Collection."),
        ("os.getpid", "Function getpid. Module: os."),
        ("builtins.bool", "Class bool. Module: builtins. Base: int."),
    ],
)
def test_known_documents(documents, identity, card):
    assert documents[identity].card == card


def test_a_text_is_the_signature_and_the_first_paragraph(documents):
    text = documents["heapq.heappush"].text
    assert text.startswith("heappush(heap, item) Push item onto heap")
    assert documents["time.sleep"].text.startswith("sleep")
    assert documents["os.getpid"].text == "getpid() Return the current process id."
    assert "\n" not in "".join(document.text for document in documents.values())


def test_documents_hold_no_addresses_paths_properties_tests_and_private_modules(documents):
    text = "\n".join(f"{document.card} {document.text}" for document in documents.values())
    assert re.search(r"\bat 0x[0-9a-f]{6,}", text) is None
    assert str(Path(os.__file__).parent) not in text
    assert "pathlib.PurePath.parent" not in documents
    assert "pathlib.PurePath.with_name" in documents
    modules = [document.id for document in documents.values() if document.kind == "module"]
    parts = {part for module in modules for part in module.split(".")}
    assert parts.isdisjoint({"test", "tests", "idlelib", "antigravity", "__main__", "posix"})
    assert not [part for part in parts if part.startswith("_")]


@pytest.mark.slow
def test_what_another_process_builds_is_what_the_cache_holds(
    tmp_path: Path, library: SearchEnvironment
) -> None:
    """With another hash seed, and a cache of its own, which is empty."""
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    own = {"PYTHONHASHSEED": seed, "TURNWISE_CACHE": str(tmp_path)}
    done = run_python(HASH, env=os.environ | own)
    assert done.stdout.strip() == library.spec.data_hash
    assert len(library.spec.data_hash) == 64


def test_a_damaged_cache_is_built_anew(tmp_path):
    source = tmp_path / "builder.py"
    source.write_text("1")
    name = str(tmp_path / "numbers")
    assert cached(name, [source], lambda: [{"n": 1}, {"n": 2}]) == [{"n": 1}, {"n": 2}]
    assert cached(name, [source], list) == [{"n": 1}, {"n": 2}]
    (file,) = tmp_path.glob("numbers-*.jsonl")
    file.write_text(file.read_text().rpartition('{"n": 2}')[0])
    assert cached(name, [source], lambda: [{"n": 3}]) == [{"n": 3}]
    source.write_text("2")
    assert cached(name, [source], lambda: [{"n": 4}]) == [{"n": 4}]


def test_reading_a_file_does_not_run_it(tmp_path):
    path = tmp_path / "harmful.py"
    path.write_text(
        "import abc as other\nfrom abc import ABC as _ABC\nraise SystemExit('was run')\n"
        "class A(_ABC):\n"
        "    '''First\n    line.\n\n    Second.'''\n"
        "    def f(self, x: int = 1): '''Do.'''\n"
        "    @staticmethod\n    def g(y): ...\n"
        "    @property\n    def h(self): ...\n"
    )
    definition = read_module(path, "harmful").definitions["A"]
    assert (definition.summary, definition.bases) == ("First line.", ("ABC",))
    methods = [(method.name, method.signature) for method in definition.methods]
    assert methods == [("f", "(x: int=1)"), ("g", "(y)")]

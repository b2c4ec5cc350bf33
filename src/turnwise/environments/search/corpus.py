"""The built-in documents: the Python standard library's own documentation, as it is installed.

One document for each public module, class, function and method: a card of facts, a signature and
the first paragraph of the docstring (`definitions.py`). What a public module takes over from a
private one (`io.BytesIO` from `_io`) belongs to the public one. The documents are the same every
time on one installation of Python.
"""

import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from turnwise.environments.search.cache import cached
from turnwise.environments.search.definitions import (
    Definition,
    Module,
    is_public,
    read_compiled_modules,
    read_module,
)
from turnwise.errors import DataError

SKIPPED = frozenset(
    {"__main__", "antigravity", "ensurepip", "idlelib", "idle_test", "lib2to3", "site-packages"}
    | {"test", "tests", "this", "turtledemo", "pydoc_data"}
)
"""Parts of module names: tests, jokes, programs, and what is not the library's own."""

INTERNAL = frozenset({"posix", "nt"})
"""Named like public modules, but documented as the module that takes them over (os)."""

BUILDER = tuple(Path(__file__).with_name(name) for name in ("corpus.py", "definitions.py"))
"""The files whose text decides what the documents are."""


@dataclass(frozen=True)
class Document:
    """An entry that a search can find.

    Example: Document(id="tarfile.TarFile", name="TarFile", kind="class",
        card="Class TarFile. Module: tarfile. Base: object.", text="TarFile(name=None, ...) ...",
        facts=(("module", "tarfile"), ("base", "object")))
    """

    id: str
    """Qualified and unique."""
    name: str
    """The bare name, or the title."""
    kind: str
    """module, class, function, method; passage for a user's own."""
    card: str
    """The text that a result begins with."""
    text: str
    facts: tuple[tuple[str, str], ...] = ()
    """(relation, bare name of its object): module, class, base, package."""


def standard_library() -> list[Document]:
    """All documents, in alphabetical order of their ids; from the cache where they are in it."""
    records = cached("documents", BUILDER, lambda: [vars(entry) for entry in build()])
    return [
        Document(**{**record, "facts": tuple((key, value) for key, value in record["facts"])})
        for record in records
    ]


def build() -> list[Document]:
    """Read the standard library. Raises DataError where Python came without its sources."""
    modules = {module.name: module for module in read_compiled_modules()}
    modules |= {name: read_module(path, name) for name, path in _files()}
    documents: dict[str, Document] = {}
    public = [module for module in modules.values() if module.public]
    for module in public:
        if module.name not in INTERNAL:
            documents[module.name] = module_document(module)
    # After all modules: what has the id of one does not take its place.
    for module in public:
        if module.name not in INTERNAL:
            for document in module_contents(module.name, _owned(module, modules)):
                documents.setdefault(document.id, document)
    return [documents[name] for name in sorted(documents)]


def _files() -> list[tuple[str, Path]]:
    """(dotted name, file) of every module with a source, private ones included."""
    root = Path(sysconfig.get_path("stdlib"))
    files: list[tuple[str, Path]] = []
    for top in sorted(sys.stdlib_module_names):
        single = root / f"{top}.py"
        for path in [single] if single.is_file() else sorted((root / top).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            if SKIPPED.isdisjoint(parts):
                files.append((".".join(parts), path))
    if not files:
        raise DataError(
            f"this Python has no library sources in {root}: use one that has, or give documents"
        )
    return files


def _owned(module: Module, modules: dict[str, Module]) -> dict[str, Definition]:
    """The definitions of a public module: its own definitions, then what it takes over."""
    owned = dict(module.definitions)
    for source, name in module.imports:
        origin = modules.get(source)
        if origin is None or (origin.public and origin.name not in INTERNAL):
            continue
        for definition in _taken(module, origin, name):
            owned.setdefault(definition.name, definition)
    return owned


def _taken(module: Module, origin: Module, name: str) -> Iterator[Definition]:
    if name == "*":
        names = origin.exported or frozenset(origin.definitions)
        yield from (definition for key, definition in origin.definitions.items() if key in names)
    elif name in origin.definitions and (module.exported is None or name in module.exported):
        yield origin.definitions[name]


def module_document(module: Module) -> Document:
    """The document of the module itself."""
    package = module.name.rpartition(".")[0]
    return Document(
        id=module.name,
        name=module.name,
        kind="module",
        card=f"Module {module.name}. Package: {package or 'none'}.",
        text=module.summary,
        facts=(("package", package),) if package else (),
    )


def module_contents(module: str, owned: dict[str, Definition]) -> Iterator[Document]:
    """The documents of its public classes, functions and methods."""
    for name in sorted(filter(is_public, owned)):
        definition = owned[name]
        if not definition.is_class:
            card = f"Function {name}. Module: {module}."
            yield _document(definition, "function", f"{module}.{name}", card, ("module", module))
            continue
        bases = ", ".join(definition.bases)
        card = f"Class {name}. Module: {module}. Base: {bases}."
        facts = [("module", module), *(("base", base) for base in definition.bases)]
        yield _document(definition, "class", f"{module}.{name}", card, *facts)
        for method in definition.methods:
            path = f"{module}.{name}.{method.name}"
            card = f"Method {method.name}. Class: {name}."
            yield _document(method, "method", path, card, ("class", name))


def _document(
    definition: Definition, kind: str, path: str, card: str, *facts: tuple[str, str]
) -> Document:
    text = f"{definition.name}{definition.signature} {definition.summary}".strip()
    return Document(path, definition.name, kind, card, text, facts)

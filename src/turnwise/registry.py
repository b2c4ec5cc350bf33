"""One way to name a part of a run: a built-in name, or one's own code.

    "search"                  a built-in name
    "mine.py:Room"            a class or function in a file
    "package.module:Room"     the same in an installed module
    "room"                    a part of a wing (`wings.py`), or an entry point of an installed
                              package, in the group of its kind: turnwise.environments,
                              turnwise.scaffolds, turnwise.token_filters, ...

A built-in name comes before an entry point of the same name. Nothing is imported before it is asked
for by its name.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from turnwise.errors import ConfigError, located, own_place, unknown_name
from turnwise.wings import missing, package_of, wings

T = TypeVar("T")
Named = TypeVar("Named", bound=Callable[..., Any])


@dataclass(frozen=True)
class BuiltIn:
    """A built-in part: its place, `package.module:Name`, and its description in one line."""

    target: str
    description: str


class Registry(Generic[T]):
    """The parts of one kind by name. Example:

    SCAFFOLDS: Registry[type[Scaffold]] = Registry("scaffold", is_scaffold, "a class with ...")
    SCAFFOLDS.register("tags", "turnwise.scaffolds.tags:TagsScaffold", "Search-R1's tags")
    SCAFFOLDS.get("mine.py:Brackets")
    """

    def __init__(self, kind: str, accepts: Callable[[Any], bool], wanted: str) -> None:
        """`kind` is for messages and gives the group of entry points ("token_filter":
        turnwise.token_filters); `accepts` says whether what was found is of this kind, `wanted`
        what to do where it is not, as in "derive the class from Environment"."""
        self.kind = kind
        self.group = f"turnwise.{kind}{'es' if kind.endswith('x') else 's'}"
        self._accepts, self._wanted = accepts, wanted
        self._built_in: dict[str, BuiltIn] = {}

    def register(self, name: str, target: str, description: str) -> None:
        """Add a built-in part. Nothing is imported."""
        self._built_in[name] = BuiltIn(target, description)

    def built_in(self, name: str) -> Callable[[Named], Named]:
        """Decorate a built-in function or class; the first line of its docstring describes it."""

        def add(named: Named) -> Named:
            found: Any = named
            line = (found.__doc__ or "").strip().partition("\n")[0]
            self.register(name, f"{found.__module__}:{found.__qualname__}", line)
            return named

        return add

    def names(self) -> list[str]:
        """The built-in names, in the order in which they were added, and those of wings."""
        return list(self._known())

    def _known(self) -> dict[str, BuiltIn]:
        """Built-in parts, and those of wings."""
        of_wings = {name: BuiltIn(*part) for name, part in wings().parts(self.kind).items()}
        return self._built_in | {k: part for k, part in of_wings.items() if k not in self._built_in}

    def descriptions(self) -> dict[str, str]:
        """Descriptions of all names, a line each: entry points of packages, and built-in parts.
        Nothing of a package is imported."""
        built_in = {name: entry.description for name, entry in self._known().items()}
        brought = {point.name: f"{point.value} of {package_of(point)}" for point in self._points()}
        return brought | built_in

    def check(self, name: str) -> None:
        """Raise ConfigError for a name that stands for nothing; a user's own code is not loaded."""
        if name in self.names() or ":" in name:
            return
        if name.endswith(".py"):
            raise ConfigError(f"{name} is a file: name what is in it, as in {name}:NAME")
        points = self._points()
        if name not in {point.name for point in points}:
            known = [*self.names(), *(point.name for point in points)]
            raise missing(self.kind, name) or unknown_name(self.kind, name, known)

    def get(self, name: str) -> T:
        """The part of that name.

        Raises ConfigError, in one line, for a name that stands for nothing (it proposes the nearest
        known one), for a part of another kind, and for a package that cannot be imported. An error
        inside a user's own file or module goes through.
        """
        self.check(name)
        if name in self.names():
            return self._find(self._known()[name].target)
        return self._find(name) if ":" in name else self._load(name)

    def _find(self, target: str) -> T:
        place, _, attribute = target.rpartition(":")
        module = load_module(place, self.kind)
        found = getattr(module, attribute, None)
        if found is None:
            fitting = {key: value for key, value in vars(module).items() if self._accepts(value)}
            if not fitting:
                raise ConfigError(
                    f"{place}: there is no {attribute!r}, and nothing else that could be the "
                    f"{self.kind}: {self._wanted}"
                )
            classes = all(isinstance(value, type) for value in fitting.values())
            what = "class" if classes else "name"
            raise ConfigError(f"{place}: {unknown_name(what, attribute, fitting)}")
        return self._accepted(target, found)

    def _load(self, name: str) -> T:
        points = [point for point in self._points() if point.name == name]
        packages = sorted({package_of(point) for point in points})
        if len(packages) > 1:
            raise ConfigError(
                f"{self.kind} {name!r} is in several packages, {', '.join(packages)}: write it as "
                f"package.module:Name, such as {points[0].value!r}"
            )
        try:
            found = points[0].load()
        except Exception as error:  # whatever a package does when it is imported
            place = "" if own_place(error) else f" ({_deepest(error)})"
            raise ConfigError(
                f"{self.kind} {name!r} of package {packages[0]} cannot be imported: "
                f"{located(error)}{place}"
            ) from error
        return self._accepted(f"{name} of package {packages[0]}", found)

    def _accepted(self, target: str, found: Any) -> T:
        if not self._accepts(found):
            article = "an" if self.kind[0] in "aeiou" else "a"
            raise ConfigError(f"{target}: not {article} {self.kind}: {self._wanted}")
        accepted: T = found
        return accepted

    def _points(self) -> list[EntryPoint]:
        return sorted(entry_points(group=self.group), key=lambda point: point.name)


def has_all(*names: str) -> Callable[[Any], bool]:
    """Make the test of a registry whose parts are classes with all of these attributes."""
    return lambda value: isinstance(value, type) and all(hasattr(value, name) for name in names)


def derives_from(base: type) -> Callable[[Any], bool]:
    """Make the test of a registry whose parts are classes that derive from this one."""
    return lambda value: isinstance(value, type) and issubclass(value, base) and value is not base


def whole_target(name: str) -> str:
    """The name with a relative `path/to/file.py:Name` made absolute; other names as they are."""
    file, _, attribute = name.rpartition(":")
    there = file.endswith(".py") and Path(file).is_file()
    return f"{Path(file).resolve()}:{attribute}" if there else name


def check_options(
    what: str, kind: Callable[..., Any], given: Sequence[Any], options: Mapping[str, Any]
) -> None:
    """Raise ConfigError, which begins with `what`, for options that a constructor does not take, or
    that it lacks, beside the arguments that it is given."""
    try:
        inspect.signature(kind).bind(*given, **options)
    except TypeError as error:
        raise ConfigError(f"{what}: {error}") from None


def load_module(place: str, what: str) -> ModuleType:
    """Import `path/to/file.py` or `package.module`; `what` is for messages.

    Raises ConfigError where it does not exist; an error inside the user's own code goes through.
    """
    return _file(Path(place), what) if place.endswith(".py") else _module(place, what)


def load_function(target: str, what: str) -> Callable[..., Any]:
    """The function of `path/to/file.py:name` or `package.module:name`; raises as `load_module`."""
    place, separator, name = target.rpartition(":")
    if not separator:
        raise ConfigError(f"{target!r} names no function: write path/to/file.py:function")
    module = load_module(place, what)
    functions = [key for key, value in vars(module).items() if callable(value)]
    if name not in functions:
        raise ConfigError(f"{place}: {unknown_name('function', name, functions)}")
    found: Callable[..., Any] = vars(module)[name]
    return found


def _file(path: Path, what: str) -> ModuleType:
    """A file that was edited is another module, so the edit is seen. It finds what is beside it, as
    a program does."""
    if not path.is_file():
        raise ConfigError(
            f"{what} file {path}: there is no such file; if it has moved, write its new place into "
            "the recipe, which of a run is its config.toml"
        )
    digest = hashlib.sha256(str(path.resolve()).encode() + path.read_bytes()).hexdigest()[:12]
    name = f"turnwise_file_{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{what} file {path}: Python cannot import it")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # for what the file imports from beside it; last, to hide nothing
    # Before it runs: dataclasses and pickle look their module up by its name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]  # another attempt begins anew
        raise
    return module


def _module(name: str, what: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A module may be there and lack one that it imports: that error goes through.
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(f"{what} module {name!r}: there is no such module") from None
        raise


def _deepest(error: BaseException) -> str:
    """The place where an error was raised: "file.py, line 12"."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}, line {frame.lineno}"

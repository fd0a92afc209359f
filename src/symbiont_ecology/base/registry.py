"""Extension points: a name stands for a frozen dataclass, and the fields of that dataclass are its
knobs.

A registry scans its own package on first use, so a new component is one new file::

    operators: Registry[Operator] = Registry("operator", "symbiont_ecology.adapters.operators")

    @operators.register("svd_noise")
    @dataclass(frozen=True)
    class SvdNoise:
        sigma: float = 0.05  # relative std of each singular value, > 0

    operators.build({"kind": "svd_noise", "sigma": 0.1})

Other packages register the same way, and an extension lists their modules (``extension``).
``validate`` is the one place where data from outside becomes typed values.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import date
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, TypeAlias, TypeVar, get_args, get_type_hints

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError, to_json

from symbiont_ecology.base.errors import ConfigError, EcologyWarning
from symbiont_ecology.base.extension import import_parts
from symbiont_ecology.base.removed import refuse_removed

_OURS, _PLUGIN = "symbiont_ecology.", "symbiont_plugin_"
_foreign: set[str] = set()
"""Modules outside of the package that have registered parts."""

T = TypeVar("T")
C = TypeVar("C")
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., object])

MAX_RANK = 4096
"""Rank of an adapter."""
MAX_SLOTS, MAX_THREADS = 1 << 16, 1024
"""Adapters in memory at once, and threads of the CPU: more than any machine serves, or has."""
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
PositiveShare: TypeAlias = Annotated[float, Field(gt=0, le=1)]
"""Types of knobs that are parts of a whole."""
Seed: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Slots: TypeAlias = Annotated[int, Field(ge=1, le=MAX_SLOTS)]
Threads: TypeAlias = Annotated[int, Field(ge=1, le=MAX_THREADS)]
Many: TypeAlias = Annotated[int, Field(ge=1, le=100_000)]
LoraRank: TypeAlias = Annotated[int, Field(ge=1, le=MAX_RANK)]
DATE = "2026-01-01"
"""The day on which runs take place, as far as a host is told."""
Megabytes: TypeAlias = Annotated[float, Field(gt=0, le=1e8)]
Modest: TypeAlias = Annotated[float, Field(ge=0, le=1e6)]
"""Numbers of which larger ones overflow something, or keep a machine busy for ever."""


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise ValueError(f"expected a day such as {DATE}, got {text!r:.100}") from error


Date: TypeAlias = Annotated[str, AfterValidator(_day)]
Spec: TypeAlias = str | dict[str, object]
"""A component in a config: its name, or ``{"kind": name, **fields}``."""


class Registry(Generic[T]):
    """One extension point: names to frozen dataclasses that fulfil the protocol ``T``.

    ``kind`` is the word for one entry in messages and on the command line; ``package`` is the
    dotted name of the folder that is scanned. Keep the registry in a name that no module beside it
    has: Python binds a submodule to its name in the parent package, over whatever was there.

    Example:
        >>> from symbiont_ecology.adapters.operators import operators
        >>> operators.build({"kind": "gaussian", "sigma": 0.1}).sigma
        0.1
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind, self.package = kind, package
        self._entries: dict[str, type[T]] = {}
        self._former: dict[str, str] = {}
        self._scanned = False

    def register(self, name: str, *former_names: str) -> Callable[[type[C]], type[C]]:
        """Return a class decorator that adds a frozen dataclass under ``name``.

        ``former_names`` are read for one version, with a warning; so are the keys of the mapping
        ``renamed`` of the class, former names of its fields.

        Raises:
            TypeError: the class is not a frozen dataclass.
            ConfigError: another class has that name.
        """

        def add(cls: type[C]) -> type[C]:
            parameters = getattr(cls, "__dataclass_params__", None)
            if not is_dataclass(cls) or parameters is None or not parameters.frozen:
                raise TypeError(f"{self.kind} {name!r}: {cls.__name__} must be a frozen dataclass")
            holder = self._entries.get(name)
            # The same class again is a module that is being reloaded, not a clash.
            if holder and _place_of(holder) != _place_of(cls):
                raise ConfigError(f"{self.kind} {name!r} is already {_place_of(holder)}")
            if not cls.__module__.startswith(_OURS):
                _foreign.add(cls.__module__)
            strict = {"extra": "forbid", "allow_inf_nan": False, "arbitrary_types_allowed": True}
            cls.__pydantic_config__ = strict  # type: ignore[attr-defined]
            self._entries[name] = cls  # type: ignore[assignment]
            self._former |= dict.fromkeys(former_names, name)
            return cls

        return add

    def function(self, name: str, *former_names: str) -> Callable[[F], F]:
        """Return a decorator that adds a plain function, which then is an entry without knobs."""

        def add(function: F) -> F:
            namespace = {
                "__call__": staticmethod(function),
                "__doc__": function.__doc__ or "",
                "__module__": function.__module__,
            }
            entry = type(function.__name__, (), namespace)
            self.register(name, *former_names)(dataclass(frozen=True)(entry))
            return function

        return add

    def names(self) -> tuple[str, ...]:
        """Return every registered name, sorted."""
        return tuple(sorted(self._all()))

    def __getitem__(self, name: str) -> type[T]:
        """Return the class of that name; ConfigError names the nearest one and lists all."""
        entries = self._all()
        name = self.present_name(name)
        if name not in entries:
            refuse_removed(self.kind, name)
            hint = did_you_mean(name, entries)
            raise ConfigError(
                f"no {self.kind} {name!r};{hint} known: {', '.join(sorted(entries)) or 'none'}"
            )
        return entries[name]

    def build(self, spec: str | Mapping[str, object]) -> T:
        """Return an instance from ``"ucb"`` or ``{"kind": "ucb", "c": 0.5}``.

        Raises:
            ConfigError: unknown name or key, missing key, or a value of the wrong type.
        """
        parts = dict(spec) if isinstance(spec, Mapping) else {"kind": spec}
        name = parts.pop("kind", None)
        if not isinstance(name, str):
            raise ConfigError(
                f"{self.kind}: expected a name or a mapping with the key 'kind', got {spec!r}"
            )
        cls, where = self[name], f"{self.kind} {name!r}"
        for key in parts:
            refuse_removed(f"key of {where}", key)
        return validate(cls, with_new_names(parts, getattr(cls, "renamed", {}), where), where)

    def present_name(self, name: str) -> str:
        """Return the name of today for a former name, with a warning; else the same name."""
        self._all()
        return next(iter(with_new_names({name: ...}, self._former, self.kind)))

    def name_of(self, entry: T) -> str:
        """Return the name under which the class of an instance is registered."""
        cls = type(entry)
        return next((name for name, part in self._all().items() if part is cls), cls.__name__)

    def called(self, entry: T, name: str = "") -> str:
        """Return a part with its name in the registry, or another one, as messages call it:
        ``reward rule 'mine' (mine.py)``."""
        cls, name = type(entry), name or self.name_of(entry)
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        return f"{self.kind} {name!r}" + (f" ({Path(file).name})" if file else "")

    def doc(self, name: str) -> str:
        """Return the docstring of one entry."""
        return inspect.getdoc(self[name]) or ""

    def _all(self) -> dict[str, type[T]]:
        if not self._scanned:
            package = importlib.import_module(self.package)
            folder = getattr(package, "__path__", ())  # a single module has none
            for module in pkgutil.iter_modules(folder, f"{self.package}."):
                importlib.import_module(module.name)
            import_parts(self.kind)
            self._scanned = True
        return self._entries


def _place_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def load_plugin(path: Path) -> None:
    """Run a Python file that registers parts, once per process.

    Raises:
        ConfigError: there is no such file, it is not below the current folder, or it fails.
    """
    place = path.resolve()
    if path.suffix != ".py" or not place.is_file() or not place.is_relative_to(Path.cwd()):
        raise ConfigError(
            f"plugins: expected a Python file below {Path.cwd()}, found none at {path}: copy it "
            "there, or type the command in the folder from which the file has this path"
        )
    name = f"{_PLUGIN}{hashlib.sha256(str(place).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # foreign code, which may fail in any way
        del sys.modules[name]
        raise ConfigError(f"plug-in {path} failed: {type(error).__name__}: {error}") from error


def with_new_names(values: Mapping[str, V], renamed: Mapping[str, str], where: str) -> dict[str, V]:
    """Return values with their former names replaced, each with a warning, once a process."""
    for old in values.keys() & renamed.keys():
        _warn_renamed(f"{where}: {old!r} is called {renamed[old]!r} now: rename it")
    return {renamed.get(name, name): value for name, value in values.items()}


@cache
def _warn_renamed(text: str) -> None:
    warnings.warn(text, EcologyWarning, stacklevel=2)


def is_foreign(module: str) -> bool:
    """Return true for a module that was loaded as a plug-in, or has registered parts from outside
    of the package."""
    return module in _foreign or module.startswith(_PLUGIN)


def kind_of(spec: str | Mapping[str, object]) -> str:
    """Return the name in a spec."""
    return spec if isinstance(spec, str) else str(spec["kind"])


class Knob(NamedTuple):
    """One field of a schema as a reader sees it; ``default`` is None when the field is required."""

    name: str
    type: str
    default: str | None
    comment: str


def knobs(schema: type) -> Iterator[Knob]:
    """Yield the fields of a dataclass or model that a config can set, with the comment at the end
    of their line."""
    comments: dict[str, str] = {}
    for cls in reversed(schema.__mro__[:-1]):
        try:
            source = inspect.getsource(cls)
        except (OSError, TypeError):  # typed at a prompt: there is no file to read comments from
            continue
        comments |= dict(re.findall(r"^    (\w+):[^#\n]*#\s*(.+)$", source, re.MULTILINE))
    for name, kind, default in _fields(schema):
        text = kind if isinstance(kind, str) else getattr(kind, "__name__", repr(kind))
        yield Knob(name, text, default, comments.get(name, ""))


def _fields(schema: type) -> Iterator[tuple[str, Any, str | None]]:
    """Yield name, type and default of every field of a dataclass or a pydantic model."""
    if issubclass(schema, BaseModel):
        for name, info in schema.model_fields.items():
            yield name, info.annotation, None if info.is_required() else repr(info.default)
        return
    for field in fields(schema):  # type: ignore[arg-type]
        if field.repr and field.init:  # else it is a part of the run, and no knob
            default = field.default
            if field.default_factory is not MISSING:
                default = field.default_factory()
            yield field.name, field.type, None if default is MISSING else repr(default)


def validate(schema: type[T], data: Mapping[str, object], where: str) -> T:
    """Return ``data`` as an instance of ``schema`` (a dataclass or a pydantic model), or one clear
    line.

    Types are strict: no text for a number, no bool for an integer; an integer is a fine float, a
    list a fine tuple. ``where`` opens the message.

    Raises:
        ConfigError: the dotted key, what was expected, what came and the nearest known key.
    """
    try:
        # By way of JSON, whose strict rules are the ones for config files: a list may be a tuple, a
        # mapping may be a dataclass.
        adapter: TypeAdapter[T] = _adapter(schema)  # type: ignore[arg-type]
        return adapter.validate_json(to_json(data, inf_nan_mode="constants"), strict=True)
    except PydanticSerializationError as error:
        raise ConfigError(f"{where}: only plain values can stand in a config ({error})") from error
    except ValidationError as error:
        raise ConfigError(f"{where}: {_one_line(schema, data, error.errors())}") from error


@cache
def _adapter(schema: type) -> TypeAdapter[Any]:
    """Return the adapter of a class; making one takes a millisecond."""
    return TypeAdapter(schema)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `` did you mean 'offspring'?`` with a leading blank, or nothing when no name is
    near."""
    matches = get_close_matches(name, list(names), n=1)
    return f" did you mean {matches[0]!r}?" if matches else ""


def _one_line(schema: type, data: Mapping[str, object], errors: list[ErrorDetails]) -> str:
    """Return the error to mend first; an unknown key comes before the missing one that it was meant
    to be."""
    errors = sorted(errors, key=lambda error: error["type"] not in _UNKNOWN)
    first, path = errors[0], _path(data, errors[0])
    dotted = ".".join(map(str, path))
    if first["type"] in _UNKNOWN:
        *parents, key = path
        keys = _keys(schema, parents)
        prefix = "".join(f"{parent}." for parent in parents)
        hint = did_you_mean(str(key), keys).replace("'", f"'{prefix}", 1)
        return f"unknown key {dotted!r};{hint} known keys: {', '.join(keys) or 'none'}"
    if first["type"] == "missing":
        return f"missing key {dotted!r}"
    # A union reports one error per member, at the same place.
    raw = [error["msg"] for error in errors if _path(data, error) == path]
    texts = [re.sub("^(Value error, |Input should be )", "", message) for message in raw]
    if first["type"] == "value_error":
        return f"{dotted}: {texts[0]}" if dotted else texts[0]
    wanted = " or ".join(dict.fromkeys(_OF_YAML.get(text, text) for text in texts))
    return f"{dotted or 'value'}: expected {wanted}, got {first['input']!r}"


_OF_YAML = {"a valid array": "a list, such as [a, b]", "an object": "keys with values"}
"""The words of YAML for those of JSON."""
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def _path(data: Any, error: ErrorDetails) -> list[str | int]:
    """Return the keys on the way to the error, without the marks that pydantic adds for members of
    a union."""
    path: list[str | int] = []
    for key in error["loc"]:
        with suppress(LookupError, TypeError):
            data = data[key]
            path.append(key)
    return [*path, error["loc"][-1]] if error["type"] == "missing" else path


def _keys(schema: type, path: list[str | int]) -> list[str]:
    """Return the keys that may stand at ``path``: the fields of the dataclass or model that is
    found there."""
    holder: type | None = schema
    for key in path:
        if holder is not None and isinstance(key, str):
            holder = nested_schema(get_type_hints(holder).get(key))
    return [] if holder is None else [name for name, _, _ in _fields(holder)]


def nested_schema(annotation: object) -> type | None:
    """Return the first dataclass or model within an annotation such as ``list[Season] | None``."""
    if isinstance(annotation, type) and (
        is_dataclass(annotation) or issubclass(annotation, BaseModel)
    ):
        return annotation
    return next((schema for part in get_args(annotation) if (schema := nested_schema(part))), None)

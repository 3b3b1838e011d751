"""What every Struct of the vocabulary is made of, and how it becomes JSON.

msgspec tells the members of a union apart by a tag, so every Struct that can be skipped carries one
(``kind``).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ParamSpec, TypeVar, dataclass_transform

import msgspec

T = TypeVar("T")
D = TypeVar("D")
P = ParamSpec("P")
Count = Annotated[int, msgspec.Meta(ge=0)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
# What is divided by or squared, in files of others: no time and no program is so long. Nothing
# walks through as many calls.
Several = Annotated[int, msgspec.Meta(ge=1, le=10**15)]
Calls = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
Bounded = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]
Duration = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Step = Annotated[float, msgspec.Meta(ge=1e-6, le=1e15)]


class Frozen(msgspec.StructMeta):
    """Makes a Struct frozen, with fields that are given by name, unless its class says otherwise.

    ``dataclass_transform`` tells mypy the same, of the base alone.
    """

    def __new__(cls, *parts: Any, **options: Any) -> Any:
        return super().__new__(cls, *parts, **{"frozen": True, "kw_only": True, **options})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Model(msgspec.Struct, frozen=True, metaclass=Frozen):
    """Base of every Struct that nothing changes once it is made."""


class Tagged(Model, tag_field="kind", tag=str.lower):
    """Base of the Structs that stand in a union with ``Skipped``; the tag is the class name in
    lower case."""


class Skipped(Tagged, kw_only=False):
    """Not measured, and why."""

    reason: str


Figure = float | Skipped  # a number, or why it was not measured

# a capture: of what ran in the calls and was compiled before kgprof listened
EARLIER_CODE = "code compiled earlier"


class Location(Model, kw_only=False):
    file: str
    line: int
    function: str = ""
    text: str = ""  # the line itself, where it could be read


class Unavailable(Model, kw_only=False):
    """A source of facts that this torch, or this way of recording, does not offer, or of whose
    facts a part is lost."""

    capture: str  # the source's name: "structured trace"
    why: str
    incomplete: bool = False  # a part of it was seen

    @property
    def words(self) -> str:
        return (
            f"capture {self.capture} "
            f"{'incomplete' if self.incomplete else 'unavailable'}: {self.why}"
        )


def ran_unseen(lost: Sequence[Unavailable]) -> str:
    """Which code ran that was compiled before kgprof listened; empty where none did."""
    return next((one.words for one in lost if one.capture == EARLIER_CODE), "")


def fit(*columns: Sequence[object], at: Sequence[int] = (), of: Sequence[object] = ()) -> None:
    """Raises ValueError where columns of one table are not equally long, or an index ``at`` lies
    outside ``of``."""
    if len(set(map(len, columns))) > 1 or not all(0 <= each < len(of) for each in at):
        raise ValueError("columns of one table do not fit together")


class NotMeasured(Exception):  # noqa: N818
    """What ``known`` raises; a ``skippable`` function returns its reason."""

    def __init__(self, skipped: Skipped) -> None:
        super().__init__(skipped.reason)
        self.skipped = skipped


def known(value: T | Skipped) -> T:
    """Return what was measured. If it was not, the ``skippable`` function around the call is
    Skipped for the same reason."""
    if isinstance(value, Skipped):
        raise NotMeasured(value)
    return value


def skippable(function: Callable[P, T]) -> Callable[P, T | Skipped]:
    """Make a function return Skipped as soon as ``known`` meets what was not measured."""

    @functools.wraps(function)
    def skipping(*args: P.args, **kwargs: P.kwargs) -> T | Skipped:
        try:
            return function(*args, **kwargs)
        except NotMeasured as met:
            return met.skipped

    return skipping


def otherwise(default: D) -> Callable[[Callable[P, T]], Callable[P, T | D]]:
    """Make a function return ``default`` as soon as ``known`` meets what was not measured."""

    def decorated(function: Callable[P, T]) -> Callable[P, T | D]:
        @functools.wraps(function)
        def answering(*args: P.args, **kwargs: P.kwargs) -> T | D:
            try:
                return function(*args, **kwargs)
            except NotMeasured:
                return default

        return answering

    return decorated


def first_skipped(*values: object) -> Skipped:
    """The first that was not measured; there must be one."""
    return next(value for value in values if isinstance(value, Skipped))


def decode_json(data: bytes | str, kind: type[T]) -> T:
    """Typed JSON. Raises msgspec.DecodeError (ValidationError when the shape is wrong)."""
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError as error:
        raise msgspec.DecodeError("it nests too deeply") from error
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError("it is not UTF-8") from error


def encode_json(value: Any) -> bytes:
    """Indented JSON with keys in declaration order: the same value gives the same bytes."""
    try:
        text = msgspec.json.encode(value)
    # lone surrogates: a program's message, the name of a file that is not UTF-8
    except UnicodeEncodeError:
        text = msgspec.json.encode(_escaped(msgspec.to_builtins(value, str_keys=True)))
    return msgspec.json.format(text, indent=2) + b"\n"


def _escaped(value: Any) -> Any:
    """Builtins without lone surrogates, which Unicode's encodings have no bytes for: ``\\udcff`` in
    their place."""
    if isinstance(value, str):
        return value.encode("utf-8", errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_escaped(key): _escaped(entry) for key, entry in value.items()}
    return [_escaped(entry) for entry in value] if isinstance(value, list | tuple) else value

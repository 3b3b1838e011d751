"""What a source of facts is: a context manager that listens to torch and leaves it as it was
found."""

import functools
import importlib.util
import logging
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Self, TypeVar

from kgprof import model as m

T = TypeVar("T")
Function = Callable[..., Any]
_ABSENT = object()
DYNAMO_ERRORS = "torch._dynamo.exc"
switched_off: dict[str, str] = {}  # in this process: sources that do not listen, and why
# of the sources that have listened in this process: file -> their names
_own_files: dict[str, set[str]] = {}


def aside(method: Callable[..., T]) -> Callable[..., T | None]:
    """A listener's own work, beside that of the program: what it raises never comes to the program.

    The listener gives up then, and does no such work any more; ``method`` returns None.
    """

    @functools.wraps(method)
    def guarded(listener: Any, *args: Any, **named: Any) -> T | None:
        if listener.gave_up:
            return None
        try:
            return method(listener, *args, **named)
        except Exception as error:  # noqa: BLE001
            listener.gives_up(error)
            return None

    return guarded


def raised(error: Exception) -> str:
    """What a listener raised, and in which of its lines."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    where = f"{Path(frame.f_code.co_filename).name}:{line}"
    return f"it raised {words(error)} ({where}) and was switched off"


def listeners_in(error: BaseException) -> tuple[str, ...]:
    """The sources whose hooks an exception came through last on its way from where it was raised.

    None for torch's refusal to compile: its cause is what the program asked for, and the frame hook
    stands around every compilation.
    """
    if type(error).__module__ == DYNAMO_ERRORS:
        return ()
    names: set[str] = set()
    for frame, _ in traceback.walk_tb(error.__traceback__):
        names = _own_files.get(frame.f_code.co_filename, names)
    return tuple(sorted(names))


def words(error: BaseException) -> str:
    """Also of an exception that cannot say what it is."""
    described = traceback.TracebackException(type(error), error, None)
    described.__notes__ = None  # lines behind its message
    *_, last = described.format_exception_only()
    return last.strip()


def first_line(error: BaseException) -> str:
    """Return the exception's name and the first line of its message."""
    lines = str(error).strip().splitlines()
    return ": ".join((type(error).__name__, *lines[:1]))


class Source:
    """Listens from enter to exit. Exit restores everything that enter touched, also when the
    workload raised."""

    name = ""
    unavailable = ""  # why this torch does not offer it (known once entered); empty when it does
    lost = ""  # what became of a part of its facts; empty where it has them all
    gave_up = False
    parts: tuple[str, ...] = ()  # further modules whose hooks are its own
    _undo = ExitStack()

    def gives_up(self, error: Exception) -> None:
        """Called in the middle of the program, where nothing can be taken off: what it has put
        there does nothing."""
        self.gave_up = True
        self.unavailable = raised(error)

    def listen(self, undo: ExitStack) -> None:
        """Begin; ``undo`` takes what ends it, called from the last to the first, each also after
        one that raised."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """A fault of its own costs its facts alone: it may begin and end in a process that is the
        user's."""
        if self.name in switched_off:
            self.unavailable = switched_off[self.name]
            return self
        for module in (*(kind.__module__ for kind in type(self).__mro__), *self.parts):
            if module.startswith("kgprof.") and module != __name__:
                _own_files.setdefault(str(sys.modules[module].__file__), set()).add(self.name)
        try:
            with ExitStack() as undo:
                self.listen(undo)
                self._undo = undo.pop_all()
        except Exception as error:  # noqa: BLE001
            self.gives_up(error)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._undo.close()
        except Exception as error:  # noqa: BLE001
            self.gives_up(error)


class LogListener(logging.Handler):
    """Does as little as it can: when a compile happens inside another one's callback, Dynamo traces
    this as well."""

    def __init__(self, take: Callable[[logging.LogRecord], None], wanted: frozenset[str]) -> None:
        """``wanted``: names of the records and artifacts that it reads; nobody else's are computed
        for it."""
        super().__init__(logging.DEBUG)
        self._take = take
        self.wanted = wanted

    def emit(self, record: logging.LogRecord) -> None:
        self._take(record)

    def stand_first(self, logger: logging.Logger, undo: ExitStack) -> None:
        """addHandler would lose the first record of torch.__trace: torch's own lazy handler takes
        itself off the list while the list is being walked, and what stands behind it is skipped
        once."""
        logger.handlers.insert(0, self)
        undo.callback(logger.removeHandler, self)


def replace(owner: Any, name: str, replacement: Any, undo: ExitStack) -> None:
    """Put ``replacement`` under a name of a class or module; what somebody else has put there
    meanwhile is left."""
    original = vars(owner).get(name, _ABSENT)
    setattr(owner, name, replacement)

    def restore() -> None:
        """Not where somebody else has replaced it since."""
        if vars(owner).get(name) is not replacement:
            return
        if original is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, original)

    undo.callback(restore)


def not_compiled(*functions: Callable[..., Any]) -> None:
    """Tell Dynamo to run these as they are: they are called where it looks at every frame."""
    from torch._dynamo.eval_frame import skip_code

    for function in functions:
        skip_code(function.__code__)


def preceded(before: Callable[[], None], function: Callable[..., None]) -> Callable[..., None]:
    """``function``, and ``before`` each time before it."""

    @functools.wraps(function)
    def both(*args: Any, **kwargs: Any) -> None:
        before()
        function(*args, **kwargs)

    return both


def when_imported(name: str, then: Callable[[], None], undo: ExitStack) -> None:
    """Calls ``then`` once a module has been imported: now if it has been, and not after ``undo``.

    Until then the finder stays: another thread that walks the list would miss the one behind it,
    and its import fail.
    """
    if name in sys.modules:
        then()
        return
    passes = False

    def find_spec(asked: str, *_: object) -> ModuleSpec | None:
        nonlocal passes
        if asked != name or passes:
            return None
        passes = True
        spec = importlib.util.find_spec(name)
        passes = False  # who asks for a spec need not import the module
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: ModuleType) -> None:
                nonlocal passes
                waiting.close()  # the loader may be other modules' too
                execute(module)
                if not passes:
                    passes = True
                    then()

            replace(spec.loader, "exec_module", executed, waiting)
        return spec

    waiting = undo.enter_context(ExitStack())
    finder = SimpleNamespace(find_spec=find_spec)
    sys.meta_path.insert(0, finder)
    undo.callback(lambda: sys.meta_path.remove(finder) if finder in sys.meta_path else None)


@contextmanager
def listening(sources: Iterable[Source]) -> Iterator[None]:
    """All of ``sources`` at once, entered in order and left in reverse."""
    with ExitStack() as stack:
        for source in sources:
            stack.enter_context(source)
        yield


def unavailable(sources: Iterable[Source]) -> tuple[m.Unavailable, ...]:
    """Each source that this torch does not offer, or that has lost a part of its facts."""
    return tuple(
        m.Unavailable(
            source.name,
            source.unavailable or source.lost,
            incomplete=not source.unavailable,
        )
        for source in sources
        if source.unavailable or source.lost
    )

"""Every viewer through the one interface that `kgprof export` calls."""

from __future__ import annotations

import gzip
import importlib
import pkgutil
from pathlib import Path

import click
import pytest

from kgprof import export
from kgprof.cli import verbs
from kgprof.errors import InputError
from kgprof.export import EXPORTERS, Exporter
from tests.analysis.events import event, write

every_exporter = pytest.mark.parametrize("exporter", EXPORTERS, ids=lambda exporter: exporter.name)


@every_exporter
def test_a_whole_trace_becomes_a_file_without_a_warning(exporter: Exporter, tmp_path: Path) -> None:
    trace = write(tmp_path / "trace.json.gz", [event("cpu_op", "aten::mm", 0, 10)], packed=True)

    file, warnings = exporter.export(trace, "fused.default, TRACE")

    data = file.read_bytes() if isinstance(file, Path) else file
    assert b"aten::mm" in (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)
    assert warnings == ()


def test_a_viewer_that_could_show_nothing_is_an_error(tmp_path: Path) -> None:
    speedscope = next(exporter for exporter in EXPORTERS if exporter.name == "speedscope")

    with pytest.raises(InputError, match="no CPU or GPU event"):
        speedscope.export(
            write(tmp_path / "trace.json.gz", [], packed=True), "fused.default, TRACE"
        )


def test_every_exporter_of_the_room_is_listed_and_can_be_asked_for() -> None:
    classes = set()
    for module in pkgutil.iter_modules(export.__path__):
        members = vars(importlib.import_module(f"kgprof.export.{module.name}")).values()
        classes |= {item for item in members if isinstance(item, type) and hasattr(item, "export")}
    viewer = next(param for param in verbs.export.params if param.name == "viewer")

    assert classes == {type(exporter) for exporter in EXPORTERS}
    assert isinstance(viewer.type, click.Choice)
    assert list(viewer.type.choices) == [
        *(exporter.name for exporter in EXPORTERS),
        "graph",
        "code",
    ]

"""Which files a finding may point at."""

from __future__ import annotations

import pytest

from kgprof.reading.project import ProjectFiles

FILES = ProjectFiles(
    libraries=("/usr/lib/python3.11", "/opt/kgprof", "/home/me/shop/.venv/lib/python3.11"),
    own=(
        "/home/me/shop",
        "/opt/kgprof/workloads/linkpred",
        "/usr/lib/python3.11/site-packages/mine",
    ),
)


@pytest.mark.parametrize(
    "file",
    [
        "/home/me/shop/model.py",
        "/elsewhere/script.py",  # neither a library's nor named
        "/opt/kgprof/workloads/linkpred/policy.py",  # the evaluator is a workload like any other
        "/opt/kgprofiler.py",  # a name that only begins like a library's
        # an installed package that is the workload itself
        "/usr/lib/python3.11/site-packages/mine/model.py",
    ],
)
def test_a_file_of_the_project(file: str) -> None:
    assert FILES.holds(file)


@pytest.mark.parametrize(
    ("file", "named"),
    [
        # from its own repository, whatever lies around that
        ("/home/me/shop/src/model.py", "src/model.py"),
        ("/home/me/shop/vendored/part/model.py", "model.py"),  # a repository in the repository
        # no repository: from the folder of the workload
        ("/opt/kgprof/workloads/linkpred/policy.py", "policy.py"),
        ("/usr/lib/python3.11/asyncio/tasks.py", "asyncio/tasks.py"),
        ("/home/me/shop/.venv/lib/python3.11/site-packages/torch/_tensor.py", "torch/_tensor.py"),
        ("/srv/env/lib/python3.12/site-packages/torch/_tensor.py", "torch/_tensor.py"),
        ("/elsewhere/script.py", "/elsewhere/script.py"),  # nothing says what it belongs to
        ("<string>", "<string>"),
    ],
)
def test_a_file_is_named_alike_in_every_checkout_and_environment(file: str, named: str) -> None:
    assert FILES.named(file, ("/home/me/shop", "/home/me/shop/vendored/part")) == named


def test_a_file_that_was_named_as_the_projects_own_keeps_its_name() -> None:
    assert (
        ProjectFiles(libraries=(), own=("/home/me/script.py",)).named("/home/me/script.py")
        == "script.py"
    )


@pytest.mark.parametrize(
    "file",
    [
        "/usr/lib/python3.11/copy.py",
        "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py",
        # of an interpreter that nobody named
        "/srv/env/lib/python3.12/site-packages/other/part.py",
        "/usr/lib/python3/dist-packages/numpy/core.py",
        # inside the project's folder
        "/home/me/shop/.venv/lib/python3.11/site-packages/torch/_tensor.py",
        "/opt/kgprof/record/timing.py",
        # what Inductor wrote, into a cache that the program named while it ran
        "/home/me/shop/5v/c5v2ec52yn637ovwyj3jexavnsdos7oct6pypebadq3wykm6y4qu.py",
        "<string>",
        "<frozen importlib._bootstrap>",
        "<eval_with_key>.7",
        "model.py",
    ],
)
def test_a_file_of_somebody_else(file: str) -> None:
    assert not FILES.holds(file)


@pytest.mark.parametrize(
    ("file", "package"),
    [
        (
            "/srv/env/lib/python3.12/site-packages/torch/nn/modules/linear.py",
            ("torch", "nn/modules/linear.py"),
        ),
        ("/srv/env/lib/python3.12/site-packages/six.py", ("six", "six.py")),
        ("/usr/lib/python3.11/asyncio/tasks.py", ("Python", "asyncio/tasks.py")),
        ("/usr/lib/python3/dist-packages/yaml/nodes.py", ("yaml", "nodes.py")),
        ("/opt/kgprof/record/source.py", ("kgprof", "record/source.py")),
        ("<string>", ("", "<string>")),
    ],
)
def test_a_librarys_file_belongs_to_a_package(file: str, package: tuple[str, str]) -> None:
    assert FILES.package(file) == package

"""The name of a module in the program: its path in the model that holds it, or the variable that
does."""

import torch
from torch.nn import Linear, ModuleDict, ModuleList, Sequential

from kgprof.record.ground import module_paths
from kgprof.record.ground.module_paths import ModulePaths


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = Sequential(Linear(2, 2), Linear(2, 2))
        self.heads = ModuleDict({"left": Linear(2, 2)})


class Proxy:
    """Its class is asked for by a property that raises."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise RuntimeError


def test_a_path_leads_from_the_outermost_module() -> None:
    model, proxy = Model(), Proxy()

    assert ModulePaths().path(model.encoder[1], {}) == "encoder.1"
    assert ModulePaths().path(model.heads["left"], {"model": model}) == "heads.left"
    assert type(proxy) is Proxy


def test_the_variable_belongs_to_a_number_and_to_the_outermost() -> None:
    layers, loose, listed = ModuleList([Linear(2, 2)]), Linear(2, 2), [Linear(2, 2), Linear(2, 2)]
    names = {"layers": layers, "loose": loose, "heads": listed, "by_name": {"a": Linear(2, 2)}}

    assert ModulePaths().path(layers[0], names) == "layers.0"
    assert ModulePaths().path(layers[0], {}) == "ModuleList.0"
    assert ModulePaths().path(loose, names) == "loose"
    assert ModulePaths().path(listed[1], names) == "heads[1]"
    assert ModulePaths().path(names["by_name"]["a"], names) == "by_name['a']"  # type: ignore[index]
    assert ModulePaths().path(Linear(2, 2), names) == ""


def test_the_module_that_torch_compile_returns_is_no_part_of_a_path() -> None:
    model = Model()
    model.encoder[0] = torch.compile(model.encoder[0], backend="eager")  # type: ignore[assignment]
    inner = model.encoder[0]._orig_mod
    whole = Model()
    compiled = torch.compile(whole, backend="eager")

    assert ModulePaths().path(inner, {}) == "encoder.0"  # type: ignore[arg-type]
    assert ModulePaths().path(whole.encoder[1], {"fast": compiled}) == "encoder.1"
    assert ModulePaths().path(whole, {"fast": compiled}) == "fast"


def test_a_module_that_came_later_is_looked_for_again_but_not_for_ever() -> None:
    paths, first = ModulePaths(), Model()
    assert paths.path(first.encoder[0], {}) == "encoder.0"

    for _ in range(module_paths.SCANS - 1):
        later = Model()
        assert paths.path(later.encoder[0], {}) == "encoder.0"

    last = Model()
    assert paths.path(last.encoder[0], {}) == ""


def test_a_layer_that_was_replaced_has_no_old_path() -> None:
    paths, model = ModulePaths(), Model()
    old = model.encoder[0]
    assert paths.path(old, {}) == "encoder.0"

    model.encoder[0] = Linear(2, 2)

    assert paths.path(old, {}) == ""

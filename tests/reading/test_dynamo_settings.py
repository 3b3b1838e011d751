"""The settings that torch names, and which of them a run may try."""

from __future__ import annotations

import json

import pytest
import torch._dynamo.config as config

from kgprof.model import DYNAMO_RESET, Setting
from kgprof.reading.dynamo_settings import ALL_SIZES, MOST_TRIED, named_in, settings_in, switches_in


def line(text: str, artifact: str = "dynamo_graph_break_reason") -> bytes:
    return json.dumps({"metadata": {"artifact": {"name": artifact}}, "payload": text}).encode()


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        (
            "Set `torch._dynamo.config.capture_scalar_outputs = True`",
            "capture_scalar_outputs",
            True,
        ),
        ("Set torch._dynamo.config.allow_rnn=True to enable", "allow_rnn", True),
        ("Change `torch._dynamo.config.trace_numpy` to `True`.", "trace_numpy", True),
        (
            "using torch._dynamo.config.use_numpy_random_stream = False",
            "use_numpy_random_stream",
            0,
        ),
    ],
)
def test_a_setting_is_read_from_torchs_words(text: str, name: str, value: bool) -> None:
    assert settings_in(text) == (Setting(name=name, value=bool(value)),)
    assert isinstance(getattr(config, name), bool)


@pytest.mark.parametrize(
    "text",
    [
        "torch._dynamo.config.recompile_limit = 12",
        "torch._dynamo.config.suppress_errors = True",
        "torch._dynamo.config.error_on_recompile = False",
        "torch._dynamo.config.fail_on_recompile_limit_hit = True",
        "torch._dynamo.config.compiled_autograd = True",
        "torch._dynamo.config.disable = False",
        "allow_rnn = True",
    ],
)
def test_what_is_no_choice_or_hides_errors_is_not_tried(text: str) -> None:
    assert settings_in(text) == ()


def test_a_limit_is_a_setting_and_is_not_tried() -> None:
    assert switches_in("set torch._dynamo.config.recompile_limit = 12") == (
        "torch._dynamo.config.recompile_limit = 12",
    )


def test_the_settings_that_breaks_and_guards_name_most_often_are_tried() -> None:
    names = [f"setting_{number}" for number in range(MOST_TRIED + 1)]
    lines = [
        line(f"torch._dynamo.config.{name} = True")
        for times, name in enumerate(names)
        for _ in range(times + 1)
    ]
    guard = "self.k == 3  # (HINT: torch._dynamo.config.allow_rnn = True)"
    lines += [line(guard, "recompile_reasons")] * 9
    other = [line("torch._dynamo.config.in_a_log = True", "another")] * 20

    named, is_reset = named_in([*lines, *other])

    assert [setting.name for setting in named] == ["allow_rnn", "setting_3", "setting_2"]
    assert not is_reset


@pytest.mark.parametrize(
    ("guard", "tried"),
    [
        ("0/0: tensor 'x' size mismatch at index 0. expected 8, actual 6", (ALL_SIZES,)),
        ("0/0: 16 <= x.size()[0]", (ALL_SIZES,)),
        ("0/0: scale == 2", ()),
    ],
)
def test_sizes_that_torch_compiles_for_again_are_tried_as_symbols(
    guard: str, tried: tuple[Setting, ...]
) -> None:
    assert named_in([line(guard, "recompile_reasons")]) == (tried, False)


def test_a_reset_is_seen() -> None:
    reset = json.dumps({"metadata": {DYNAMO_RESET: True}}).encode()

    assert named_in([reset]) == ((), True)

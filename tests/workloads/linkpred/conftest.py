"""The evaluator's compiled steps use the CPU's vector instructions here, as they do for its users.

Other tests compile without them: see tests/conftest.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch._inductor import config, cpu_vec_isa


@pytest.fixture(autouse=True, scope="module")
def _vector_instructions() -> Iterator[None]:
    cpu_vec_isa.valid_vec_isa_list.cache_clear()
    with config.patch({"cpp.vec_isa_ok": True}):
        yield
    cpu_vec_isa.valid_vec_isa_list.cache_clear()

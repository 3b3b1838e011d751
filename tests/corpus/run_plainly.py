"""Runs programs of the corpus with nothing of kgprof listening, one after the other in one process.

TORCH_TRACE=DIR python -m tests.corpus.run_plainly [PROGRAM ...]
"""

from __future__ import annotations

import contextlib
import sys
import warnings

import torch

from tests.corpus.record import _load
from tests.corpus.truth import CORPUS, programs


def main(*names: str) -> None:
    sys.path.insert(0, str(CORPUS))
    warnings.simplefilter("ignore")
    for program in programs():
        if not names or program.name in names:
            torch._dynamo.reset()
            step = _load(program).build()
            for call in range(program.calls):
                with contextlib.suppress(torch._dynamo.exc.TorchDynamoException):
                    step(call)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""One tensor of a rung against its reference, in figures."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from kgprof import model as m
from kgprof.record.reproduction import beyond
from kgprof.workloads.user import DTYPE, TOLERANCES

Arrays = Mapping[str, np.ndarray]


def differences(found: Arrays, eager: Arrays, wide: Arrays) -> Iterator[m.TensorDifference]:
    """Of every tensor in ``found`` or ``eager``; ``wide`` may lack some."""
    for name in (name for name in {**eager, **found} if not name.startswith("kgprof.")):
        ours = found.get(name)
        theirs = eager.get(name)
        dtypes = [
            None if side.get(name) is None else str(side.get(f"{DTYPE}{name}", side[name].dtype))
            for side in (found, eager)
        ]
        if ours is None or theirs is None:
            yield _unlike(
                name,
                dtypes,
                ours,
                theirs,
                f"only {'eager' if ours is None else 'the compiled program'} has it",
            )
        elif ours.shape != theirs.shape:
            yield _unlike(
                name, dtypes, ours, theirs, f"shape {ours.shape}, but {theirs.shape} in eager"
            )
        elif dtypes[0] != dtypes[1]:
            yield _unlike(
                name, dtypes, ours, theirs, f"dtype {dtypes[0]}, but {dtypes[1]} in eager"
            )
        else:
            yield difference(name, str(dtypes[0]), ours, theirs, wide.get(name))


def difference(
    name: str, dtype: str, found: np.ndarray, eager: np.ndarray, wide: np.ndarray | None
) -> m.TensorDifference:
    relative, absolute = TOLERANCES.get(dtype, TOLERANCES["bfloat16"])
    differs, error, by_float64 = beyond(found, eager, wide, relative, absolute)
    reference = wide if by_float64 and wide is not None else eager
    floats = found.dtype.kind in "fc"
    finite = np.isfinite(found) & np.isfinite(reference) if floats else np.ones(found.shape, bool)
    with np.errstate(all="ignore"):
        normal = finite & (
            np.abs(reference) >= (absolute if floats else 1)
        )  # nearer to 0 that tolerance is what counts
        ratio = (error / np.abs(reference))[normal].max(initial=0.0)
        ulps = _ulps(found, reference, dtype)
        of_eager = (
            np.abs(eager - reference)[finite & np.isfinite(eager)].max(initial=0.0)
            if floats
            else 0.0
        )

    def count(is_one: Callable[[np.ndarray], np.ndarray], array: np.ndarray) -> int:
        return int(is_one(array).sum()) if floats else 0

    worst: tuple[int, ...] = ()
    if found.size:
        weight = (
            np.where(differs, 2.0, 0.0) * (1 + np.where(finite, error, np.inf))
            if differs.any()
            else error
        )
        worst = tuple(
            int(part)
            for part in np.unravel_index(
                int(np.argmax(np.nan_to_num(weight, nan=0.0))), found.shape
            )
        )
    return m.TensorDifference(
        name=name,
        dtype=dtype,
        elements=found.size,
        differing=int(differs.sum()),
        reference=m.Reference.FLOAT64 if by_float64 else m.Reference.EAGER,
        max_abs=float(error[finite].max(initial=0.0)),
        max_rel=float(ratio),
        max_ulp=None if ulps is None else int(ulps[normal].max(initial=0)),
        eager_max_abs=float(of_eager),
        nans=count(np.isnan, found),
        infs=count(np.isinf, found),
        reference_nans=count(np.isnan, reference),
        reference_infs=count(np.isinf, reference),
        worst=worst,
        worst_value=f"{found[worst]:.9g}" if found.size else "",
        worst_reference=f"{reference[worst]:.9g}" if found.size else "",
    )


def _ulps(found: np.ndarray, reference: np.ndarray, dtype: str) -> np.ndarray | None:
    """Steps between neighbouring numbers of ``dtype``, from the reference rounded to it. A bfloat16
    lies in float32."""
    if dtype not in ("float16", "bfloat16", "float32", "float64"):
        return None
    bits, lowest = {"float16": (np.int16, -(2**15)), "float64": (np.int64, -(2**63))}.get(
        dtype, (np.int32, -(2**31))
    )
    ranks = []
    for array in (found, reference):
        rank = np.asarray(array, dtype=found.dtype, order="C").view(bits).astype(np.int64)
        if dtype == "bfloat16":
            # to nearest, ties to even
            rank = (rank + 0x7FFF + ((rank >> 16) & 1)) >> 16
            lowest = -(2**15)
        ranks.append(np.where(rank < 0, lowest - rank, rank))
    sizes = [np.abs(rank).astype(np.uint64) for rank in ranks]
    other_sign = (ranks[0] < 0) != (ranks[1] < 0)
    return np.where(other_sign, sizes[0] + sizes[1], np.maximum(*sizes) - np.minimum(*sizes))


def _unlike(
    name: str,
    dtypes: list[str | None],
    ours: np.ndarray | None,
    theirs: np.ndarray | None,
    why: str,
) -> m.TensorDifference:
    """Every element of a tensor that is missing, or of another shape or dtype, differs."""
    size = max(array.size for array in (ours, theirs) if array is not None)
    return m.TensorDifference(
        name=name,
        dtype=dtypes[0] or dtypes[1] or "",
        elements=size,
        differing=max(1, size),
        reference=m.Reference.EAGER,
        max_abs=0.0,
        max_rel=0.0,
        max_ulp=None,
        eager_max_abs=0.0,
        nans=0,
        infs=0,
        reference_nans=0,
        reference_infs=0,
        why=why,
    )

"""One tensor of a rung against its reference, in figures."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from kgprof import model as m
from kgprof.lab.reproduction import beyond
from kgprof.workloads.user import DTYPE, TOLERANCES

Arrays = Mapping[str, np.ndarray]


def differences(found: Arrays, eager: Arrays, wide: Arrays) -> Iterator[m.TensorDifference]:
    """Of every tensor in ``found`` or ``eager``; ``wide`` may lack some."""
    for name in {**eager, **found}:
        if name.startswith("kgprof."):
            continue
        sides = [side[name] for side in (found, eager) if name in side]
        dtypes = [
            str(side.get(f"{DTYPE}{name}", side[name].dtype))
            for side in (found, eager)
            if name in side
        ]
        if len(sides) == 1:
            alone = "the compiled program" if name in found else "eager"
            why = f"only {alone} has it"
        elif sides[0].shape != sides[1].shape:
            why = f"shape {sides[0].shape}, but {sides[1].shape} in eager"
        elif dtypes[0] != dtypes[1]:
            why = f"dtype {dtypes[0]}, but {dtypes[1]} in eager"
        else:
            ours, theirs = sides
            yield difference(name, dtypes[0], ours, theirs, wide.get(name))
            continue
        yield _unlike(name, dtypes[0], max(side.size for side in sides), why)


def difference(
    name: str, dtype: str, found: np.ndarray, eager: np.ndarray, wide: np.ndarray | None
) -> m.TensorDifference:
    relative, absolute = TOLERANCES.get(dtype, TOLERANCES["bfloat16"])
    differs, error, by_float64 = beyond(found, eager, wide, relative, absolute)
    reference = wide if by_float64 and wide is not None else eager
    floats = found.dtype.kind in "fc"
    finite = np.isfinite(found) & np.isfinite(reference) if floats else np.ones(found.shape, bool)
    with np.errstate(all="ignore"):
        # nearer to 0 that tolerance is what counts
        normal = finite & (np.abs(reference) >= (absolute if floats else 1))
        ratio = (error / np.abs(reference))[normal].max(initial=0.0)
        ulps = _ulps(found, reference, dtype)
        of_eager = 0.0
        if floats:
            of_eager = np.abs(eager - reference)[finite & np.isfinite(eager)].max(initial=0.0)

    def count(is_one: Callable[[np.ndarray], np.ndarray], array: np.ndarray) -> int:
        return int(is_one(array).sum()) if floats else 0

    worst: tuple[int, ...] = ()
    if found.size:
        weight = error
        if differs.any():
            with np.errstate(invalid="ignore"):  # 0 times infinity, where both are NaN
                weight = np.where(differs, 2.0, 0.0) * (1 + np.where(finite, error, np.inf))
        at = int(np.argmax(np.nan_to_num(weight, nan=0.0)))
        worst = tuple(map(int, np.unravel_index(at, found.shape)))
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


def _unlike(name: str, dtype: str, size: int, why: str) -> m.TensorDifference:
    """Every element of a tensor that is missing, or of another shape or dtype, differs."""
    return m.TensorDifference(
        name=name,
        dtype=dtype,
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

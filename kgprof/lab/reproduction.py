"""Where a result differs, and what a graph computes. The text of the functions stands in the
scripts that are saved, so they use numpy and torch alone."""

from typing import Any

import numpy as np
import torch


def beyond(
    found: np.ndarray, eager: np.ndarray, wide: np.ndarray | None, relative: float, absolute: float
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Which elements differ, how far each is from the reference, and whether that is float64 (else
    it is eager).

    An element x may be ``factor * E + absolute + relative * |r|`` away from its value r in float64,
    E being eager's largest error in the tensor; the factor is that of torch._dynamo.utils.same. If
    eager is a quarter of the tensor's magnitude away from float64 (it drew other random numbers, or
    took another branch), or there is no float64, eager is the reference, with ten times the
    tolerances and the tensor's largest magnitude for |r|.
    """
    if found.dtype.kind not in "fc":
        differs = found != eager
        by_float64 = wide is not None and wide.dtype == found.dtype and wide.shape == found.shape
        # an index that float64 has otherwise than eager is as good as either
        if wide is not None and by_float64:
            differs &= found != wide
        return differs, (found != eager).astype(float), by_float64
    whole = np.complex128 if found.dtype.kind == "c" else np.float64
    x = found.astype(whole)
    e = eager.astype(whole)
    r = e if wide is None or wide.shape != e.shape else wide.astype(whole)
    with np.errstate(all="ignore"):
        common = np.isfinite(e) & np.isfinite(r)
        size = float(np.sqrt(np.mean(np.abs(r[common]) ** 2))) if common.any() else 0.0
        away = float(np.sqrt(np.mean(np.abs(e[common] - r[common]) ** 2))) if common.any() else 0.0
        by_float64 = wide is not None and wide.shape == e.shape and away <= size / 4 + absolute
        if by_float64:
            factor = 8 if x.size <= 500 else 3
            if x.size <= 10:
                factor = 10
            allowed = (
                factor * np.abs(e - r)[common].max(initial=0.0) + absolute + relative * np.abs(r)
            )
        else:
            r = e
            allowed = np.full(
                x.shape, 10 * (absolute + relative * np.abs(e[np.isfinite(e)]).max(initial=0.0))
            )
        error = np.abs(x - r)
        finite = np.isfinite(x) & np.isfinite(r)
        # NaN or infinity on one side: as in eager or as in float64 is as it should be.
        alike = [
            np.isclose(x, other, rtol=relative, atol=absolute, equal_nan=True) for other in (e, r)
        ]
        return np.where(finite, error > allowed, ~(alike[0] | alike[1])), error, by_float64


def weighted_backward(results: list[torch.Tensor]) -> None:
    """Run the backward of a sum of the results, with weights that bfloat16 holds exactly and under
    which no gradient vanishes, as that of a plain sum behind a normalisation does."""
    weights = [
        (1 + torch.arange(each.numel(), device=each.device).reshape(each.shape) % 7 / 8).to(
            each.dtype
        )
        for each in results
    ]
    torch.autograd.backward(results, weights)


def outcome(function: Any, inputs: list[Any]) -> dict[str, tuple[str, np.ndarray]]:
    """What a graph returns, leaves in its inputs, and gives as their gradients: name -> (dtype,
    array)."""

    def array(tensor: torch.Tensor) -> tuple[str, np.ndarray]:
        dense = tensor.detach().resolve_conj().resolve_neg().cpu()
        narrow = dense.dtype.is_floating_point and dense.dtype not in (
            torch.float16,
            torch.float32,
            torch.float64,
        )
        return str(tensor.dtype).removeprefix("torch."), (
            dense.float() if narrow else dense
        ).numpy().copy()

    torch.manual_seed(0)
    tensors = [each if isinstance(each, torch.Tensor) else None for each in inputs]
    leaves = [
        each if each is None else each.detach().clone().requires_grad_(each.requires_grad)
        for each in tensors
    ]
    given = [
        each if leaf is None else leaf.clone() for each, leaf in zip(inputs, leaves, strict=True)
    ]
    made = torch.utils._pytree.tree_leaves(function(*given))
    results = {
        f"result {at}": each for at, each in enumerate(made) if isinstance(each, torch.Tensor)
    }
    changed = {
        f"input {at} after": each for at, each in enumerate(given) if isinstance(each, torch.Tensor)
    }
    found = {name: array(each) for name, each in {**results, **changed}.items()}
    with_gradient = [each for each in results.values() if each.requires_grad]
    if with_gradient:
        weighted_backward(with_gradient)
        gradients = ((at, leaf.grad) for at, leaf in enumerate(leaves) if leaf is not None)
        found |= {
            f"gradient of input {at}": array(grad) for at, grad in gradients if grad is not None
        }
    return found

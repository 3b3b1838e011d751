"""The environment variables that change what torch does, as the user set them (read before kgprof sets its own)."""

from __future__ import annotations

from collections.abc import Mapping

PREFIXES = (
    "TORCH",  # TORCH_*, TORCHINDUCTOR_*, TORCHDYNAMO_*
    "PYTORCH_",
    "TRITON_",
    "CUDA_",
    "CUBLAS_",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_",  # threads that spin while they wait take a core from what is measured
    "GOMP_",
    "KMP_",
    "MKL_",
    "ATEN_",
    "KGPROF_",
)
NAMES = ("CXX", "CC", "LD_PRELOAD", "PYTHONHASHSEED")


def flags(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in sorted(environment.items()) if k.startswith(PREFIXES) or k in NAMES}

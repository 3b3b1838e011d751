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
READ_EACH_TIME = ("PYTORCH_NVML_BASED_CUDA_CHECK",)  # by torch.cuda.is_available(); Lightning sets it around its calls


def flags(environment: Mapping[str, str]) -> dict[str, str]:
    chosen = {name for name in environment if name.startswith(PREFIXES) or name in NAMES}
    return {name: environment[name] for name in sorted(chosen - {*READ_EACH_TIME})}

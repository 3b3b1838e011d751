"""The environment variables that change what torch does, as the user set them (read before kgprof
sets its own)."""

import os
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
# Lightning, sklearn
SET_BY_LIBRARIES = ("PYTORCH_NVML_BASED_CUDA_CHECK", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK")


Variables = Mapping[str, str]  # of an environment


def flags(environment: Variables = os.environ) -> dict[str, str]:
    chosen = {name for name in environment if name.startswith(PREFIXES) or name in NAMES}
    return {name: environment[name] for name in sorted(chosen - {*SET_BY_LIBRARIES})}

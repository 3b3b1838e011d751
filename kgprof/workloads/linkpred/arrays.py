"""What the numpy arrays of the evaluator hold."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Outcomes = npt.NDArray[np.int8]  # codes of proof.py
Steps = npt.NDArray[np.int32]

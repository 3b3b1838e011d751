"""CUDA graphs: what was skipped, recorded again or copied; the addresses that they depend on."""

"""The documents' own programs, a file each: what a strategy runs in one step, and what of it a mode
compiles.

Each module has ``STRATEGIES``, from a strategy's name to how it is built;
``kgprof.workloads.catalog`` has the shapes.
"""

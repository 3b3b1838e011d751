"""Findings about code that runs in this process: ``kgprof.watch``, and the pytest fixture made of
it."""

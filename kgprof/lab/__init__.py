"""Experiments with a program: one function in many ways, each in a process of its own: a grid of
modes and sizes, CUDA graphs, the ladder from eager to generated code."""

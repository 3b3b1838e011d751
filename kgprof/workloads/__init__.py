"""Workloads: the built-in evaluator and the user's own, behind one protocol (see protocol.py)."""

"""Traces in the formats of other programs."""

"""Recipes for training small models."""

from shelf.fitting import fit

__all__ = ["fit"]

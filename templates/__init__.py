"""Installed as kgprof.templates; found through kgprof.resources."""

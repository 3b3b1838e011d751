"""Reads a Recording and what lies in it, without torch: layout, load, traces, records, sources."""

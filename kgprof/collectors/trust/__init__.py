"""Whether a Recording can be believed: what was looked at, and by how many sources."""

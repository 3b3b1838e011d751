"""Files that somebody else recorded, as a Recording: Kineto traces, a TORCH_TRACE directory, what
torch's flight recorder left."""

import time


def normalised(x):
    mean, std = x.mean(), x.std()
    if std == 0:
        return x - mean
    return (x - mean) / std


def clipped(x, limit=10.0):
    started = time.perf_counter()
    out = x.clamp(-limit, limit)
    return out + 0.0 * started

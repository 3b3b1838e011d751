from meters.accuracy import Accuracy
from meters.throughput import Throughput

__all__ = ["Accuracy", "Throughput"]

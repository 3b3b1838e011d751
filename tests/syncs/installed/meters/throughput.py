import time

import torch


class Throughput:
    def __init__(self):
        self.began, self.counts = time.perf_counter(), torch.zeros(0)

    def update(self, count):
        self.counts = torch.cat([self.counts, torch.tensor([float(count)])])
        self.largest = self.counts.max().item()

    def compute(self):
        return self.counts.sum().item() / (time.perf_counter() - self.began)

"""A collate function is compiled and runs in the two workers of a DataLoader."""

import torch
from torch.utils.data import DataLoader


@torch.compile(backend="eager")
def stacked(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(rows).float() / 255


if __name__ == "__main__":
    pixels = [torch.full((3,), value) for value in range(8)]
    loader = DataLoader(pixels, batch_size=4, collate_fn=stacked, num_workers=2)
    print(sum(batch.sum().item() for batch in loader))

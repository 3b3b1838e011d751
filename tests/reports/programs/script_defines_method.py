"""A script whose compiled method is never called, and in whose text no function is left to call."""

import torch as t


class Stage:
    @t.compile(backend="eager")
    def run(self, chunk):
        return chunk.flip(0)


if __name__ == "__main__":
    print(Stage.__name__)

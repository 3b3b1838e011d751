"""A script whose only compiled function is called by a main() that nothing calls."""

from torch import compile as compiled
from torch import ones


@compiled(backend="eager")
def blend(left, right):
    return left * 0.3 + right * 0.7


def main(rounds=3):
    for _ in range(rounds):
        blend(ones(5), ones(5))

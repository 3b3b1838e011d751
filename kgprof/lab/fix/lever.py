"""What a lever is: a change of a program's text, and when it is worth trying.

The change is made in a copy of the owner's file, so what is tried is what the owner would have.
Levers stand in ``kgprof.lab.fix.levers``; the order is that of ``LEVERS``, most promising first.
"""

import math
from collections.abc import Callable

from kgprof import model as m


class Lever(m.Model):
    """``edit`` takes the text of the workload's file and gives the new one; None where the text has
    no place for it, or has the change already."""

    id: str
    says: str  # what it does, in words that stand in a table
    changes: m.Changes
    # why this program may gain from it, from what its first start showed; empty: it can not
    wanted: Callable[[m.StepFacts], str]
    edit: Callable[[str, m.StepFacts], str | None]
    # what these do goes on while another process has its turn
    starts_workers: bool = False
    # it is given up where its first process takes longer
    patience_s: float = math.inf

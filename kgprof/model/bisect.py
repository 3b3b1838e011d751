"""What `kgprof bisect` found: the commits that were tried, and the first bad one or those that
remain."""

from enum import StrEnum

from kgprof.model.structs import Model

SHORT_COMMIT = 12  # digits that a person reads


class BisectVerdict(StrEnum):
    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"  # nobody can tell; another commit is tried instead
    INCONCLUSIVE = "inconclusive"  # noise; the search ends with it


class BisectedCommit(Model, kw_only=False):
    """A commit that was tried; ``why``: what its verdict stands on, if there is more to say."""

    commit: str
    subject: str
    verdict: BisectVerdict
    why: str = ""
    recorded: bool = True  # False: the workload died in it, or is not there

    @property
    def named(self) -> str:
        return f"{self.commit[:SHORT_COMMIT]} {self.subject}"

    @property
    def words(self) -> str:
        return f"{self.verdict}: {self.named}" + f" ({self.why})" * bool(self.why)


class Bisect(Model):
    looked_for: tuple[str, ...]  # what differs between GOOD and BAD, and decides
    tried: tuple[BisectedCommit, ...]  # in that order, BAD and GOOD first
    remaining: tuple[str, ...]  # may be the first bad commit; one at the end
    why_open: str = ""  # no first bad commit is known; empty: it is ``remaining``
    authored: str = ""  # of the first bad commit, as files and diff
    files: tuple[str, ...] = ()  # that it changed, as seen from its first parent
    diff: str = ""  # of the line that the difference is put down to

"""The interval between the polls of a run, and whether the run keeps its target lag; no clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

_REMEMBERED_SYNCS = 5
_MARGIN = 1.25
_SHORTEST_PAUSE = 1.0


@dataclass(frozen=True)
class LagVerdict:
    """What one poll says about the lag."""

    lag: float | None = None
    kept: bool | None = None
    changed: bool = False


class PollInterval:
    """The interval between the polls of one run, from the end of one to the start of the next.

    A commit that lands just after a poll has read the table waits for the rest of that poll, for the pause and for the
    whole next sync. So the pause is the target lag, less the time of the last poll, less the time that a sync is
    expected to take: the longest of the last five that found commits, plus a quarter. Until a poll has found commits, a
    sync is expected to take half the target lag.

    Commits that the first poll finds do not count: they waited before the run began. Later polls find only commits
    that the poll before them could not see. So none of these waited longer than since that poll began, even if its
    snapshot is older: it was staged first, or the clock of the writer is slow.

    Example, target lag 10 s: an idle poll takes 0.2 s, the slowest of the last syncs took 2 s. The pause is
    10 - 0.2 - 1.25 * 2 = 7.3 s.
    """

    def __init__(self, target_lag: float, longest_pause: float = 0.0) -> None:
        self.target_lag = target_lag
        self.seconds_kept = self.seconds_missed = 0.0
        self._longest_pause = longest_pause
        self._syncs: deque[float] = deque(maxlen=_REMEMBERED_SYNCS)
        self._last: tuple[float, float] | None = None
        self._keeps = True

    def poll_ended(self, began: float, ended: float, lag: float | None) -> LagVerdict:
        """Take a poll into account."""
        last, self._last = self._last, (began, ended)
        took = ended - began
        if last is None:
            # A first poll that works off a backlog says little about the next ones.
            if lag is not None:
                self._syncs.append(min(took, self.target_lag / 2))
            return LagVerdict()
        if lag is not None:
            self._syncs.append(took)
            lag = round(min(lag, ended - last[0]), 3)
        if not self.target_lag:
            return LagVerdict(lag)
        elapsed = ended - last[1]
        missed = min(max(0.0, (lag or 0.0) - self.target_lag), elapsed)
        self.seconds_missed += missed
        self.seconds_kept += elapsed - missed
        return self._verdict(lag, took)

    @property
    def pause(self) -> float:
        """Seconds to wait before the next poll."""
        if not self.target_lag or self._last is None:
            return self._longest_pause
        took = self._last[1] - self._last[0]
        expected = max([*self._syncs, took]) * _MARGIN if self._syncs else max(self.target_lag / 2, took)
        shortest = min(_SHORTEST_PAUSE, self.target_lag / 10)
        pause = max(shortest, self.target_lag - took - expected)
        return min(pause, self._longest_pause) if self._longest_pause else pause

    def _verdict(self, lag: float | None, took: float) -> LagVerdict:
        # A poll without commits does not show that the next sync is fast enough, only that a slow one would be late.
        late = took > self.target_lag or (lag is not None and lag > self.target_lag)
        kept = False if late else None if lag is None else True
        changed = kept is not None and kept != self._keeps
        self._keeps = self._keeps if kept is None else kept
        return LagVerdict(lag, kept, changed)

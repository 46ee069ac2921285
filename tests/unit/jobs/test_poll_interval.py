"""The interval between polls: the pause, the lag that counts, and whether the target lag is kept."""

import pytest

from icecdc_core.jobs.poll import PollInterval


def interval_after(
    *polls: tuple[float, float, float | None], target: float = 10.0, longest: float = 0.0
) -> PollInterval:
    """An interval that has seen these polls: begin, end and lag."""
    interval = PollInterval(target, longest)
    for poll in polls:
        interval.poll_ended(*poll)
    return interval


class DescribeThePause:
    @pytest.mark.parametrize(
        ("polls", "expected"),
        [
            # Nothing is known of a sync yet: half the target lag is kept for it.
            ([(0, 0.2, None)], 10 - 0.2 - 5),
            # A short first sync, then an idle poll.
            ([(0, 2, 60.0)], 10 - 2 - 2.5),
            ([(0, 2, 60.0), (8, 8.2, None)], 10 - 0.2 - 2.5),
            # A first poll that works off a backlog counts as half the target lag at most.
            ([(0, 600, 9000.0), (601, 601.2, None)], 10 - 0.2 - 1.25 * 5),
            # The slowest of the last syncs counts.
            ([(0, 1, 9.0), (2, 4, 2.5), (9, 10, 1.5)], 10 - 1 - 1.25 * 2),
            # Idle polls that take longer than a sync count as well.
            ([(0, 1, 9.0), (2, 5, None)], 10 - 3 - 1.25 * 3),
            # Five fast syncs make it grow again.
            ([(0, 1, 9.0), (2, 8, 6.5), *((n * 10, n * 10 + 1, 1.5) for n in range(1, 6))], 10 - 1 - 1.25),
            # The target cannot be kept: the shortest pause.
            ([(0, 1, 9.0), (2, 22, 21.0)], 1.0),
        ],
    )
    def it_leaves_time_for_the_poll_before_and_the_sync_after(self, polls, expected):
        assert interval_after(*polls).pause == pytest.approx(expected)

    @pytest.mark.parametrize(("target", "expected"), [(1.0, 0.1), (3.0, 0.3), (10.0, 1.0), (300.0, 1.0)])
    def it_is_never_shorter_than_a_second_or_a_tenth_of_the_target(self, target, expected):
        assert interval_after((0, 1, 9.0), (2, 1000, 999.0), target=target).pause == pytest.approx(expected)

    @pytest.mark.parametrize(("longest", "expected"), [(0.0, 7.3), (3.0, 3.0), (0.05, 0.05), (9.0, 7.3)])
    def it_is_at_most_the_poll_interval_and_equal_to_it_without_a_target(self, longest, expected):
        assert interval_after((0, 2, 60.0), (8, 8.2, None), longest=longest).pause == pytest.approx(expected)
        assert interval_after((0, 600, 9000.0), target=0.0, longest=2.5).pause == 2.5


class DescribeTheLag:
    @pytest.mark.parametrize(
        ("polls", "expected"),
        [
            # The first poll's commits waited before the run began.
            ([(0, 2, 3600.0)], (None, None, False)),
            ([(0, 1, None), (5, 6, None)], (None, None, False)),
            ([(0, 1, None), (5, 6, 4.0)], (4.0, True, False)),
            ([(0, 1, None), (5, 6, 0.0)], (0.0, True, False)),
            ([(0, 1, None), (9, 14, 10.0)], (10.0, True, False)),
            ([(0, 1, None), (9, 14, 10.1)], (10.1, False, True)),
            # The poll before began 6 s ago and did not see the commit, whatever its time says.
            ([(0, 1, None), (5, 6, 3600.0)], (6.0, True, False)),
            # A commit of now would be late, though there was none.
            ([(0, 1, None), (5, 17, None)], (None, False, True)),
        ],
    )
    def it_counts_from_the_commit_and_from_the_poll_before_at_most(self, polls, expected):
        interval = interval_after(*polls[:-1])
        assert interval.poll_ended(*polls[-1]) == expected

    def it_adds_up_how_long_the_target_was_kept_and_missed_if_there_is_one(self):
        assert interval_after((0, 1, None), target=0.0).poll_ended(100, 101, 50.0) == (50.0, None, False)
        interval = interval_after((0, 100, 9000.0), (104, 105, 3.0), (124, 125, 18.0), (126, 127, 12.5))
        # 27 s after the first poll; commits waited 8 s beyond the target, and no more than the last 2 s.
        assert (interval.seconds_kept, interval.seconds_missed) == (17 + 2, 8 + 0)


class DescribeTheWorstCase:
    @pytest.mark.parametrize(("target", "share"), [(3.0, 0.4), (10.0, 0.2), (300.0, 0.02)])
    def it_keeps_the_target_for_a_commit_just_after_each_read(self, target, share):
        sync, now, interval, committed = target * share, 0.0, PollInterval(target), None
        lags = []
        for _ in range(50):
            began, ended = now, now + sync
            lag, _, _ = interval.poll_ended(began, ended, None if committed is None else ended - committed)
            lags.append(lag or 0.0)
            committed, now = began + 0.001, ended + interval.pause
        assert (interval.seconds_missed, max(lags) <= target, max(lags) > target * 0.7) == (0.0, True, True)

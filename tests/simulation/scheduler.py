"""Several processes in one: one thread works at a time, a seeded choice says which, and time is a number.

Each task has a thread, because the code under test blocks. A task that waits (for an answer, a lock, a time) hands over
to another one. So an order of steps depends on the seed alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from types import SimpleNamespace
from typing import Any

_STEPS = 4000
"""More steps than any schedule needs: a run that repeats itself for ever is a defect."""
_THREADS = ThreadPoolExecutor(1000)  # more than any schedule has tasks
_current = threading.local()


def current() -> Any:
    """Return the `task` of this thread and its `scheduler`."""
    return _current


class Killed(BaseException):
    """A process was killed: nothing of it is executed any more."""


class ScheduleError(AssertionError):
    """The schedule cannot go on: all tasks wait for each other, or one of them never ends."""


@dataclass
class Process:
    name: str
    host: str = "a"
    pid: int = 0
    offset: float = 0.0
    alive: bool = True
    paused_until: float = 0.0


@dataclass(eq=False)
class Task:
    """A thread of a process; it may go on when ``ready`` says so, or from ``deadline`` on."""

    process: Process
    work: Callable[[], None]
    ready: Callable[[], bool] | None = None
    deadline: float | None = None
    done: bool = False
    baton: threading.Lock = field(default_factory=threading.Lock)

    def may_go_on(self, now: float) -> bool:
        if not self.process.alive:
            return True  # to be unwound
        if self.process.paused_until > now:
            return False
        if self.deadline is not None and self.deadline <= now:
            return True
        return self.ready() if self.ready else self.deadline is None

    def wakes(self) -> float | None:
        """When it may go on at the latest, None if only another task can decide that."""
        if self.deadline is None and self.ready and not self.ready():
            return None
        return max(self.process.paused_until, 0.0 if self.ready and self.ready() else self.deadline or 0.0)


class Scheduler:
    def __init__(self, random: Random, world: Any = None) -> None:
        self.random = random
        self.world = world
        self.now = 1000.0
        self.failure: BaseException | None = None
        self.stickiness = random.choice((0.3, 0.6, 0.9))
        self._tasks: list[Task] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._steps = 0
        self._main = threading.Lock()
        self._main.acquire()

    def spawn(self, process: Process, work: Callable[[], None]) -> Task:
        task = Task(process, work)
        task.baton.acquire()
        self._tasks.append(task)
        _THREADS.submit(self._work, task)
        return task

    def _work(self, task: Task) -> None:
        task.baton.acquire()
        _current.task, _current.scheduler = task, self
        try:
            if self.failure is None and task.process.alive:
                task.work()
        except Killed:
            pass
        except BaseException as error:
            self.fail(error)
        task.done = True
        self._tasks.remove(task)
        (self._pick(None).baton if self._tasks else self._main).release()

    def at(self, time: float, event: Callable[[], None]) -> None:
        self._steps += 1
        heappush(self._events, (time, self._steps, event))

    def run(self) -> None:
        """Run until every task is done; then raise what ended the schedule early."""
        if self._tasks:
            self._pick(None).baton.release()
            self._main.acquire()
        if self.failure is not None:
            raise self.failure

    def settle(self) -> None:
        while self._events:
            self.now = max(self.now, self._events[0][0])
            heappop(self._events)[2]()

    def hand_over(self, ready: Callable[[], bool] | None = None, deadline: float | None = None) -> None:
        """Let others go on; return when this task is chosen again."""
        task = current().task
        task.ready, task.deadline = ready, deadline
        chosen = self._pick(task)
        if chosen is not task:
            chosen.baton.release()
            task.baton.acquire()
        if self.failure is not None or not task.process.alive:
            raise Killed

    def fail(self, failure: BaseException) -> None:
        self.failure = self.failure or failure
        for task in self._tasks:
            task.process.alive = False

    def _pick(self, task: Task | None) -> Task:
        self._steps += 1
        if self._steps > _STEPS:
            self.fail(ScheduleError("it does not end"))
        while True:
            while self._events and self._events[0][0] <= self.now and self.failure is None:
                heappop(self._events)[2]()
            able = [each for each in self._tasks if each.may_go_on(self.now)]
            if able:
                sticks = task in able and len(able) > 1 and self.random.random() < self.stickiness
                return task if task and sticks else self.random.choice(able)
            times = [time for each in self._tasks if (time := each.wakes()) is not None]
            times += [self._events[0][0]] if self._events else []
            if not times:
                self.fail(ScheduleError("all tasks wait for each other"))
                continue
            self.now = max(self.now, min(times))


class SimulatedLock:
    def __init__(self) -> None:
        self._taken = False

    def acquire(self, timeout: float = -1) -> bool:
        scheduler = current().scheduler
        if self._taken:
            scheduler.hand_over(lambda: not self._taken, None if timeout < 0 else scheduler.now + timeout)
        if self._taken:
            return False
        self._taken = True
        return True

    def release(self) -> None:
        self._taken = False

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: Any) -> None:
        self.release()


class SimulatedEvent:
    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def wait(self, timeout: float) -> bool:
        scheduler = current().scheduler
        scheduler.hand_over(lambda: self._set, scheduler.now + timeout)
        return self._set


class SimulatedThread:
    """`threading.Thread`: another task of the process."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...] = (), **_: Any) -> None:
        self._work = lambda: target(*args)

    def start(self) -> None:
        self._task = current().scheduler.spawn(current().task.process, self._work)

    def join(self) -> None:
        current().scheduler.hand_over(lambda: self._task.done)


THREADING = SimpleNamespace(Lock=SimulatedLock, Event=SimulatedEvent, Thread=SimulatedThread)
# What the code uses of `time`: the clock of the machine that the process runs on.
TIME = SimpleNamespace(
    monotonic=lambda: current().scheduler.now + current().task.process.offset,
    sleep=lambda seconds: current().scheduler.hand_over(deadline=current().scheduler.now + seconds),
)
RANDOM = SimpleNamespace(uniform=lambda least, most: current().scheduler.random.uniform(least, most))

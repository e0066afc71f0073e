"""Run third-party coroutines in their own task, with a deadline and a forced stop; the flag that stops them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from wieldy.core.descriptors import DescriptorGate
from wieldy.core.errors import WieldyError
from wieldy.core.logs import log

T = TypeVar("T")

GRACE_SECONDS = 0.9


class Abort:
    """Set once, never cleared. Threads poll `aborted`; others register a listener."""

    __slots__ = ("_listeners", "aborted", "reason")

    def __init__(self) -> None:
        self.aborted = False
        self.reason = ""
        self._listeners: dict[int, Callable[[], None]] = {}

    def set(self, reason: str = "interrupted by the user") -> None:
        """Set the flag and call the listeners. Later calls change nothing."""
        if self.aborted:
            return
        self.aborted, self.reason = True, reason
        for listener in list(self._listeners.values()):
            listener()
        self._listeners.clear()

    def listen(self, listener: Callable[[], None]) -> int:
        """Call `listener` when the flag is set, or now if it is. Returns the key for `forget`."""
        if self.aborted:
            listener()
        key = id(listener)
        self._listeners[key] = listener
        return key

    def forget(self, key: int) -> None:
        """Remove a listener."""
        self._listeners.pop(key, None)


class Aborted(WieldyError):
    """The user interrupted; `partial` is what the coroutine returned while it was being stopped."""

    def __init__(self, reason: str, partial: Any = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.partial = partial


class TimedOut(WieldyError):
    """The deadline passed; `partial` is what the coroutine returned while it was being stopped."""

    def __init__(self, seconds: float, partial: Any = None) -> None:
        super().__init__(f"timed out after {seconds:g} s")
        self.seconds = seconds
        self.partial = partial


class HostExitAttempted(WieldyError):
    """Third-party code raised `SystemExit` or another exception that is meant to end the whole program."""

    def __init__(self, error: BaseException) -> None:
        text = " ".join(str(error).split())
        super().__init__(f"it tried to end the program ({type(error).__name__}{f': {text}' if text else ''})")


class Supervisor:
    """Waits for coroutines until they end, are aborted or time out. A task that ignores cancellation is abandoned after
    `grace` seconds and awaited later, in `aclose`."""

    def __init__(self, grace: float = GRACE_SECONDS) -> None:
        self.grace = grace
        self._abandoned: set[asyncio.Task[Any]] = set()

    async def run_call(self, start: Callable[[], Coroutine[Any, Any, T]], abort: Abort, seconds: float) -> T:
        """`run` a tool once this process has file descriptors left for it."""
        if DescriptorGate.of_process is None:
            return await self.run(start(), abort, seconds)
        async with DescriptorGate.of_process.call():
            return await self.run(start(), abort, seconds)

    async def run(self, coroutine: Coroutine[Any, Any, T], abort: Abort, seconds: float | None = None) -> T:
        """Return the coroutine's result. Raises `Aborted`, `TimedOut`, or whatever the coroutine raised."""
        if abort.aborted:
            coroutine.close()
            raise Aborted(abort.reason)
        loop = asyncio.get_running_loop()
        task = loop.create_task(_contain(coroutine))
        wakeup: asyncio.Future[None] = loop.create_future()

        def wake(_: object = None) -> None:
            if not wakeup.done():
                wakeup.set_result(None)

        task.add_done_callback(wake)
        listener = abort.listen(wake)
        timer = None if seconds is None else loop.call_later(seconds, wake)
        try:
            await wakeup
            if task.done():
                return _result(task)
            await self._stop(task)
        except asyncio.CancelledError:
            await self._stop(task)
            raise
        finally:
            abort.forget(listener)
            if timer is not None:
                timer.cancel()
        if abort.aborted:
            raise Aborted(abort.reason, _partial_result(task))
        assert seconds is not None
        raise TimedOut(seconds, _partial_result(task))

    async def wait(self, future: asyncio.Future[T], abort: Abort) -> T:
        """Return the result of a future of our own. Raises `Aborted`."""
        if abort.aborted:
            future.cancel()
            raise Aborted(abort.reason)
        listener = abort.listen(future.cancel)  # type: ignore[arg-type]
        try:
            return await future
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if abort.aborted and not (task is not None and task.cancelling()):
                raise Aborted(abort.reason) from None
            raise
        finally:
            abort.forget(listener)

    async def aclose(self) -> None:
        """Cancel abandoned tasks that still run, and give them a moment to end."""
        tasks = list(self._abandoned)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self.grace)

    async def _stop(self, task: asyncio.Task[Any]) -> None:
        if task.done():
            return
        task.cancel()
        try:
            await asyncio.wait((task,), timeout=self.grace)
        finally:
            if not task.done():
                self._abandoned.add(task)
                task.add_done_callback(self._reap)

    def _reap(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an abandoned task ended with an error", exc_info=error)


async def _contain(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine of third-party code, which must not end the program. Raises `HostExitAttempted`."""
    try:
        return await coroutine
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise_if_ctrl_c(error)
        raise HostExitAttempted(error) from error


def raise_if_ctrl_c(error: BaseException) -> None:
    """Raise an exception again that may come from the person's Ctrl-C.

    `asyncio.run` has a SIGINT handler of its own, which cancels; under that one, `KeyboardInterrupt` comes from the code itself.
    """
    if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        raise error


def _result(task: asyncio.Task[T]) -> T:
    if task.cancelled():
        raise RuntimeError("it cancelled itself")
    if isinstance(task.exception(), GeneratorExit):
        raise RuntimeError("it raised GeneratorExit")  # the exception itself would close the coroutines that wait
    return task.result()


def _partial_result(task: asyncio.Task[Any]) -> Any:
    if not task.done() or task.cancelled() or task.exception() is not None:
        return None
    return task.result()

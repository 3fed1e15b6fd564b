"""A TCP proxy between one scheduler and the API server, which can cut, stall, drop and slow down what passes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

Mode = Literal["open", "cut", "stalled", "dropping", "slow"]
"""`open` passes everything on. `cut` breaks all connections and refuses new ones. `stalled` holds everything back, and
delivers it late. `dropping` is a network that is gone without a word: connections stay open, and nothing arrives; they
break afterwards. `slow` passes each piece on after `SLOW_S`.
"""
CHUNK = 1 << 16
SLOW_S = 0.15
CONNECT_S = 5.0


class Gate:
    """Listens on a port of 127.0.0.1, and passes on to `port` there."""

    def __init__(self, port: int) -> None:
        self.target = port
        """Where new connections go."""
        self._mode: Mode = "open"
        self._pass = asyncio.Event()
        self._pass.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def port(self) -> int:
        """The port on which the gate listens, once it is open."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def close(self) -> None:
        """Listen no more, and break all connections."""
        if self._server is not None:
            self._server.close()
        self.break_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def set(self, mode: Mode) -> None:
        """Pass on data in this mode from now on."""
        before, self._mode = self._mode, mode
        if mode == "cut" or before == "dropping":
            self.break_all()
        if mode in ("stalled", "dropping"):
            self._pass.clear()
        else:
            self._pass.set()

    def break_all(self) -> None:
        """Break all connections; what was held back is lost."""
        for writer in list(self._writers):
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mode == "cut":
            writer.transport.abort()
            return
        self._writers.add(writer)
        there: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(CONNECT_S):
                back, there = await asyncio.open_connection("127.0.0.1", self.target)
            self._writers.add(there)
            await asyncio.gather(self._pass_on(reader, there), self._pass_on(back, writer))
        except OSError:  # also a time-out: the API server does not listen
            pass
        finally:
            for each in filter(None, (writer, there)):
                self._writers.discard(each)
                each.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._pass.wait()
                if self._mode == "slow":
                    await asyncio.sleep(SLOW_S)
                writer.write(data)
                await writer.drain()
        await self._pass.wait()
        with suppress(OSError):
            writer.write_eof() if writer.can_write_eof() else writer.close()


class Gates:
    """The gates of all schedulers."""

    def __init__(self, port: int, count: int) -> None:
        self.each = [Gate(port) for _ in range(count)]

    async def __aenter__(self) -> Gates:
        for gate in self.each:
            await gate.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        for gate in self.each:
            await gate.close()

    def all(self, do: Callable[[Gate], None]) -> None:
        """Do something to each."""
        for gate in self.each:
            do(gate)

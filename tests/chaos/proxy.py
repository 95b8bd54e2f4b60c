"""A TCP proxy before the server's socket, under a weather that delays, drops and cuts."""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Weather:
    """What befalls the bytes.

    Args:
        delay: seconds that a chunk waits at most.
        cut: chance of a chunk to be halved, and its connection cut behind the first half.
        deaf: what the server answers is thrown away.
        still: nothing passes, in either direction.
    """

    delay: float = 0.0
    cut: float = 0.0
    deaf: bool = False
    still: bool = False


FAIR: Final = Weather()
SLOW: Final = Weather(delay=0.3)
LEAKY: Final = Weather(cut=0.05)
DEAF: Final = Weather(deaf=True)
STILL: Final = Weather(still=True)

Ends = tuple[asyncio.StreamWriter, asyncio.StreamWriter]


class Proxy:
    """Listens on a free port of 127.0.0.1, for the server on the Unix *socket*."""

    def __init__(self, socket: Path, seed: int) -> None:
        self.socket = socket
        self.dice = random.Random(seed)
        self.weather = FAIR
        self.port = 0
        self.open: set[Ends] = set()
        self.loop = asyncio.new_event_loop()
        started = threading.Event()
        self.thread = threading.Thread(target=self.run, args=[started], daemon=True)
        self.thread.start()
        started.wait(10)

    def run(self, started: threading.Event) -> None:
        server = self.loop.run_until_complete(asyncio.start_server(self.serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self.loop.run_forever()

    def close(self) -> None:
        self.cut_all()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)

    def cut_all(self) -> None:
        """Cut every connection, with a reset, not a farewell."""
        for ends in list(self.open):
            self.loop.call_soon_threadsafe(cut, ends)

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            server, to_server = await asyncio.open_unix_connection(self.socket)
        except OSError:
            to_client.transport.abort()
            return
        ends = (to_client, to_server)
        self.open.add(ends)
        try:
            await asyncio.gather(
                self.pump(client, to_server), self.pump(server, to_client, answers=True)
            )
        except OSError:
            pass
        finally:
            cut(ends)
            self.open.discard(ends)

    async def pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, answers: bool = False
    ) -> None:
        """Hand on what comes from *source*, as the weather lets it.

        Raises:
            OSError: the connection is at its end, or was cut.
        """
        while chunk := await source.read(65_536):
            await self.wait_out()
            if answers and self.weather.deaf:
                continue
            if self.dice.random() < self.weather.cut:
                target.write(chunk[: len(chunk) // 2])
                await target.drain()
                raise OSError("cut")
            target.write(chunk)
            await target.drain()
        raise OSError("ended")

    async def wait_out(self) -> None:
        if self.weather.delay:
            await asyncio.sleep(self.dice.uniform(0, self.weather.delay))
        while self.weather.still:
            await asyncio.sleep(0.05)


def cut(ends: Ends) -> None:
    for end in ends:
        end.transport.abort()

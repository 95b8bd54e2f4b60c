"""What goes wrong, and when: a seeded schedule of faults, each undone after a while."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.chaos.proxy import DEAF, FAIR, LEAKY, SLOW, STILL, Weather
from tests.chaos.stage import ROLE, Member, Stage

Undo = Callable[[], None]
LEASE_SECONDS: Final = 2.0  # see settings.py
OURS: Final = f"FROM pg_stat_activity WHERE usename = '{ROLE}' AND random() < 0.6"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One kind of fault. *strike* may answer how to undo it, after *seconds*."""

    name: str
    weight: int
    strike: Callable[[Stage, random.Random], Undo | None]
    seconds: tuple[float, float] = (0, 0)


@dataclass(frozen=True)
class Event:
    """When which fault strikes, and how long it lasts; its own dice."""

    at: float
    fault: Fault
    lasts: float
    dice: random.Random


def a_worker(stage: Stage, dice: random.Random) -> Member:
    return dice.choice(stage.workers)


def anybody(stage: Stage, dice: random.Random) -> Member:
    return dice.choice([*stage.workers, *stage.workers, *stage.clients])


def kill(stage: Stage, dice: random.Random) -> None:
    anybody(stage, dice).send(signal.SIGKILL)


def terminate(stage: Stage, dice: random.Random) -> None:
    a_worker(stage, dice).send(signal.SIGTERM)


def pause(stage: Stage, dice: random.Random) -> Undo:
    """Longer than its leases last: others take over, and then it goes on as if nothing were."""
    member = anybody(stage, dice)
    paused = member.process
    member.send(signal.SIGSTOP)

    def go_on() -> None:
        if member.process is paused:
            member.send(signal.SIGCONT)

    return go_on


def cut_sessions(stage: Stage, dice: random.Random) -> None:
    stage.sql(f"SELECT pg_terminate_backend(pid) {OURS}")


def cancel_statements(stage: Stage, dice: random.Random) -> None:
    stage.sql(f"SELECT pg_cancel_backend(pid) {OURS}")


def kill_backend(stage: Stage, dice: random.Random) -> None:
    """By -9, as the kernel does when memory runs out: the server starts itself anew."""
    for (pid,) in stage.sql(f"SELECT pid {OURS} LIMIT 1"):
        os.kill(pid, signal.SIGKILL)


def restart(stage: Stage, dice: random.Random) -> None:
    stage.restart()


def outage(stage: Stage, dice: random.Random) -> None:
    stage.restart(away=dice.uniform(1, 2 * LEASE_SECONDS))


def fill_up(stage: Stage, dice: random.Random) -> Undo:
    """No connection more than a few, and those who have one lose it."""
    stage.sql(f"ALTER ROLE {ROLE} CONNECTION LIMIT 3")
    cut_sessions(stage, dice)
    return lambda: void(stage.sql(f"ALTER ROLE {ROLE} CONNECTION LIMIT -1"))


def void(_: object) -> None:
    pass


def weather(which: Weather) -> Callable[[Stage, random.Random], Undo]:
    def strike(stage: Stage, dice: random.Random) -> Undo:
        stage.proxy.weather = which

        def clear_up() -> None:
            if stage.proxy.weather is which:
                stage.proxy.weather = FAIR
            if which.deaf:
                stage.proxy.cut_all()  # else they would wait for ever for what was thrown away

        return clear_up

    return strike


def cut_proxied(stage: Stage, dice: random.Random) -> None:
    stage.proxy.cut_all()


def fault(
    name: str,
    weight: int,
    strike: Callable[[Stage, random.Random], Undo | None],
    seconds: tuple[float, float] = (0, 0),
) -> Fault:
    return Fault(name=name, weight=weight, strike=strike, seconds=seconds)


FAULTS: Final = (
    fault("SIGKILL", 20, kill),
    fault("SIGTERM", 8, terminate),
    fault("SIGSTOP longer than a lease", 14, pause, (1.2 * LEASE_SECONDS, 3 * LEASE_SECONDS)),
    fault("pg_terminate_backend", 8, cut_sessions),
    fault("pg_cancel_backend", 6, cancel_statements),
    fault("SIGKILL of a backend", 3, kill_backend),
    fault("restart -m immediate", 4, restart),
    fault("server away", 2, outage),
    fault("no connection left", 5, fill_up, (1, 2 * LEASE_SECONDS)),
    fault("proxy cuts all", 6, cut_proxied),
    fault("proxy slow", 5, weather(SLOW), (1, 4)),
    fault("proxy cuts inside messages", 6, weather(LEAKY), (1, 4)),
    fault("proxy loses answers", 8, weather(DEAF), (0.2, 2)),
    fault("proxy lets nothing pass", 5, weather(STILL), (1, 2 * LEASE_SECONDS)),
)


def schedule(seed: int, seconds: float, *, pause: float) -> Iterator[Event]:
    """Every fault once, in any order, then as their weights have it; *pause* apart on average."""
    dice = random.Random(f"{seed} faults")
    first = dice.sample(FAULTS, len(FAULTS))
    at = pause
    while at < seconds:
        chosen = first.pop() if first else dice.choices(FAULTS, [f.weight for f in FAULTS])[0]
        yield Event(at, chosen, dice.uniform(*chosen.seconds), random.Random(dice.random()))
        at += dice.uniform(0.3, 1.7) * pause

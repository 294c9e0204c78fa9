"""The oracle of the fleet: which processes there are, who should run, when the next try is due.

Written apart from the core: nothing here calls the code under test.
"""

from dataclasses import dataclass, field

from llamasup.config.spec import InstanceConf
from llamasup.core.model import Haste, Verb
from tests.core.samples import RESTART

Want = tuple[str, int]
"""A model and the number of restarts asked for: what makes one process differ from the next."""


@dataclass
class Process:
    """One process of the world."""

    gen: int
    want: Want
    born: float
    ignores: int  # SIGTERMs that it does not mind
    unkillable: bool
    stage: int = 0  # spawned, listening, loaded, warmed
    responsive: bool = True
    terms: int = 0
    kills: int = 0
    killed_at: float | None = None
    faulted: bool = False  # taken down although it was wanted
    unfit: bool = False
    warmed_at: float | None = None

    @property
    def signalled(self) -> bool:
        return self.terms + self.kills > 0

    @property
    def serves(self) -> bool:
        return self.stage == 3 and self.responsive and not self.signalled

    @property
    def must_end(self) -> bool:
        return not self.unkillable if self.kills else self.terms > self.ignores

    @property
    def can_end(self) -> bool:
        return not (self.kills and self.unkillable)


@dataclass
class Wishes:
    """The oracle: who should run, and how a process that should not is to be left."""

    confs: dict[str, InstanceConf] = field(default_factory=dict)
    overrides: dict[str, bool] = field(default_factory=dict)
    serials: dict[str, int] = field(default_factory=dict)
    hastes: dict[str, Haste] = field(default_factory=dict)
    shutdown: Haste | None = None

    def want(self, name: str) -> Want | None:
        if self.shutdown is not None or name not in self.confs:
            return None
        conf = self.confs[name]
        if not self.overrides.get(name, conf.policy.autostart):
            return None
        return conf.spec.model, self.serials.get(name, 0)

    def command(self, name: str, verb: Verb, haste: Haste) -> None:
        self.overrides[name] = verb is not Verb.STOP
        self.hastes[name] = haste
        if verb is Verb.RESTART:
            self.serials[name] = self.serials.get(name, 0) + 1

    def forget(self, name: str) -> None:
        self.overrides.pop(name, None)
        self.serials.pop(name, None)

    def may_kill_at_once(self, name: str) -> bool:
        return Haste.KILL in (self.shutdown, self.hastes.get(name))


@dataclass
class Backoff:
    """The oracle of restarts of one instance."""

    streak: int = 1
    ends: list[float] = field(default_factory=list)
    pending: tuple[float, float] | None = None  # the next try: not before, at the latest
    at_once: bool = False  # the end just now was one after a stable run
    in_loop: bool = False  # the slow pace stays until a stable run

    def crash(self, now: float, warmed_at: float | None) -> None:
        stable = warmed_at is not None and now - warmed_at >= RESTART.stable
        streak = 0 if stable else self.streak
        self.streak = streak + 1
        self.ends = [end for end in self.ends if now - end < RESTART.window] + [now]
        self.in_loop = len(self.ends) > RESTART.burst or (self.in_loop and streak > 0)
        if self.in_loop:
            self.pending = (now + RESTART.max_delay, now + RESTART.max_delay)
        elif streak == 0:
            self.at_once = True
        else:
            full = min(RESTART.max_delay, RESTART.delay * 2 ** (streak - 1))
            self.pending = (now + full / 2, now + full)

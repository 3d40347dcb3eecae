"""The configuration file: TOML, read in full, validated, frozen. Each error names the key and its bounds."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from reference_scheduler.core.amounts import MAX_QUANTITY, Resources
from reference_scheduler.core.model import (
    Config,
    Fairness,
    Idempotency,
    Limit,
    QueueBounds,
    ResourceRequest,
    Scope,
)
from reference_scheduler.errors import SchedulerError
from reference_scheduler.requests import DEFAULT_PROFILES, Profile

_TABLES = ("resources", "queue", "fairness", "limits", "kinds", "service")
_MAX_MS = 10**12
_MAX_COUNT = 10**9
_MAX_NAME = 100
_Choice = TypeVar("_Choice", bound=StrEnum)


class ConfigError(SchedulerError):
    """The configuration is wrong; the message names file, key and bounds."""

    code = "config"


class Rollout(StrEnum):
    """Which jobs the scheduler runs: none (it records what it would decide), those of listed kinds, or all."""

    OBSERVE = "observe"
    ACTIVE = "active"
    MANDATORY = "mandatory"


class StopMode(StrEnum):
    """What becomes of running attempts when the scheduler is asked to stop."""

    DRAIN = "drain"
    INTERRUPT = "interrupt"


class ServiceSettings(msgspec.Struct, frozen=True):
    """Who besides the owner may ask a service for something: names or numbers of users, by role."""

    admins: tuple[str, ...] = ()
    submitters: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()


class Settings(msgspec.Struct, frozen=True):
    """All that a deployment chooses. ``core`` is what decisions depend on.

    ``active_kinds`` counts under the rollout ``active``. The live attempts, and a journal that could not be
    written, are looked at again every ``reconcile_interval_us``. Of the jobs that have ended the latest
    ``keep_ended`` are remembered.
    """

    core: Config = Config()
    rollout: Rollout = Rollout.MANDATORY
    active_kinds: tuple[str, ...] = ()
    reconcile_interval_us: int = 1_000_000
    on_stop: StopMode = StopMode.DRAIN
    keep_ended: int = 10_000
    profiles: Mapping[str, Profile] = msgspec.field(default_factory=DEFAULT_PROFILES.copy)
    service: ServiceSettings = ServiceSettings()

    def executes(self, kind: str) -> bool:
        """Return whether jobs of ``kind`` are run here; otherwise their callers run them."""
        return self.rollout is Rollout.MANDATORY or (self.rollout is Rollout.ACTIVE and kind in self.active_kinds)

    def profile(self, kind: str) -> Profile:
        """Return what jobs of ``kind`` are unless they say otherwise."""
        return self.profiles.get(kind) or Profile()


def load_settings(path: Path, kinds: Collection[str] = ()) -> Settings:
    """Return the settings in the file ``path``; if ``kinds`` are given, jobs are of no others.

    Raises:
        ConfigError: it cannot be read, or a key is unknown or out of bounds.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # besides what is no TOML or UTF-8, a number of thousands of digits
        raise ConfigError(f"{path}: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: tables or arrays are nested too deeply") from error
    try:
        _check_tables(document)
        settings = settings_of(document)
        if kinds:
            check_kinds(settings, kinds)
        return settings
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def check_kinds(settings: Settings, kinds: Iterable[str]) -> None:
    """Raise ConfigError if ``settings`` say something of a kind that is none of ``kinds``, nor comes with a profile."""
    known = {kind: kind for kind in (*kinds, *DEFAULT_PROFILES)}
    named = [(f"scheduler.kinds.{kind}", kind) for kind in settings.profiles]
    named += [("scheduler.active_kinds", kind) for kind in settings.active_kinds]
    for key, kind in named:
        if kind not in known:
            names = ", ".join(sorted(known))
            raise ConfigError(f"{key}: there is no kind {kind!r}, only {names}{_meant(kind, known)}")


def _check_tables(document: Mapping[str, Any]) -> None:
    """Refuse other tables than ``scheduler`` in a file that is the scheduler's own: they can only be mistakes."""
    tables = {"scheduler": "scheduler", **{name: f"scheduler.{name}" for name in _TABLES}}
    for key in document:
        if key != "scheduler":
            raise ConfigError(f"{key}: unknown, all keys belong to [scheduler]{_meant(key, tables)}")


def _meant(key: str, known: Mapping[str, str]) -> str:
    """Return a question for who may have misspelt one of the ``known`` keys, each with its full name."""
    return "".join(f"; did you mean {known[name]}?" for name in get_close_matches(key, known, n=1))


def settings_of(document: Mapping[str, Any]) -> Settings:
    """Return the settings that a parsed TOML ``document`` gives; other tables than ``scheduler`` are not its own.

    Raises:
        ConfigError: a key is unknown or out of bounds.
    """
    table = _Table("scheduler", document.get("scheduler", {}))
    if not table.flag("enabled", True):
        return Settings(core=Config(enabled=False))  # it refuses all work, so no bound can matter
    settings = Settings(
        core=_core(table),
        rollout=table.choice("rollout", Rollout, Rollout.MANDATORY),
        active_kinds=table.names("active_kinds"),
        reconcile_interval_us=1000 * table.number("reconcile_interval_ms", 1000, 1, _MAX_MS),
        on_stop=table.choice("on_stop", StopMode, StopMode.DRAIN),
        keep_ended=table.number("keep_ended", 10_000, 1, _MAX_COUNT),
        profiles={**DEFAULT_PROFILES, **_profiles(table.table("kinds"))},
        service=_service(table.table("service")),
    )
    table.finish()
    if settings.active_kinds and settings.rollout is not Rollout.ACTIVE:
        raise ConfigError('scheduler.active_kinds: only has a meaning with rollout = "active"')
    return settings


def _core(table: _Table) -> Config:
    resources, queue, fairness = table.table("resources"), table.table("queue"), table.table("fairness")
    total = queue.number("max_total", 256, 1, _MAX_COUNT)
    config = Config(
        resources=Resources(
            resources.number("max_cpu_weight", 8, 1, MAX_QUANTITY),
            resources.number("max_memory_mb_hint", 8192, 1, MAX_QUANTITY),
            resources.number("max_process_slots", 4, 1, MAX_QUANTITY),
            resources.number("max_io_weight", 8, 1, MAX_QUANTITY),
            resources.number("max_network_slots", 4, 1, MAX_QUANTITY),
        ),
        queue=QueueBounds(
            total,
            queue.number("max_per_workspace", min(64, total), 1, total, "max_total"),
            queue.number("max_interactive_per_session", 8, 1, _MAX_COUNT),
            queue.number("claim_batch", min(32, total), 1, total, "max_total"),
        ),
        fairness=Fairness(
            fairness.number("interactive_weight", 8, 1, _MAX_COUNT),
            fairness.number("normal_weight", 4, 1, _MAX_COUNT),
            fairness.number("background_weight", 2, 1, _MAX_COUNT),
            fairness.number("maintenance_weight", 1, 1, _MAX_COUNT),
            fairness.number("max_high_priority_burst", 8, 1, _MAX_COUNT),
            1_000_000 * fairness.number("aging_secs", 300, 1, _MAX_COUNT),
        ),
        limits=tuple(_limits(table.table("limits"))),
        picker=table.name("picker", "fair"),
        preemption=table.flag("preemption", False),
    )
    for group in (resources, queue, fairness):
        group.finish()
    return config


def _limits(table: _Table) -> list[Limit]:
    """Read ``max_running_per_user`` and so on, one for each scope."""
    limits = []
    for scope in Scope:
        most = table.number(f"max_running_per_{scope}", 0, 1, _MAX_COUNT)
        if most:
            limits.append(Limit(scope, most))
    table.finish()
    return limits


def _service(table: _Table) -> ServiceSettings:
    service = ServiceSettings(table.names("admins"), table.names("submitters"), table.names("readers"))
    table.finish()
    return service


def _profiles(table: _Table) -> dict[str, Profile]:
    """Read one table for each kind; what it leaves out is as by default."""
    profiles = {}
    for kind in table.rest():
        entry = table.table(kind)
        base = DEFAULT_PROFILES.get(kind) or Profile()
        timeout_ms = entry.number("timeout_ms", 0, 1, _MAX_MS)
        profiles[kind] = Profile(
            idempotency=entry.choice("idempotency", Idempotency, base.idempotency),
            timeout_us=1000 * timeout_ms if timeout_ms else base.timeout_us,
            request=_request(entry.table("request")) if "request" in entry.rest() else base.request,
        )
        entry.finish()
    return profiles


def _request(table: _Table) -> ResourceRequest:
    amounts = {name: table.number(name, 0, 0, MAX_QUANTITY) for name in Resources._fields}
    request = ResourceRequest(**amounts, exclusivity_keys=table.names("exclusivity_keys"))
    table.finish()
    return request


class _Table:
    """A TOML table that is read key by key; what is left over is unknown."""

    def __init__(self, name: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise ConfigError(f"{name}: must be a table, got {value!r}")
        self._name = name
        self._values = dict(value)
        self._known: dict[str, str] = {}

    def rest(self) -> list[str]:
        """Return the keys that were not yet read."""
        return list(self._values)

    def finish(self) -> None:
        """Refuse what was not read."""
        for key in self._values:
            raise ConfigError(f"{self._name}.{key}: unknown key{_meant(key, self._known)}")

    def _take(self, key: str, default: Any) -> Any:
        self._known[key] = key
        return self._values.pop(key, default)

    def table(self, key: str) -> _Table:
        return _Table(f"{self._name}.{key}", self._take(key, {}))

    def number(self, key: str, default: int, low: int, high: int, bound: str = "") -> int:
        value = self._take(key, None)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            most = f"{high} ({bound})" if bound else str(high)
            self._refuse(key, f"a whole number between {low} and {most}", value)
        return int(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._take(key, default)
        if not isinstance(value, bool):
            self._refuse(key, "true or false", value)
        return bool(value)

    def name(self, key: str, default: str) -> str:
        value = self._take(key, default)
        if not isinstance(value, str) or not 1 <= len(value) <= _MAX_NAME:
            self._refuse(key, f"a text of 1 to {_MAX_NAME} characters", value)
        return str(value)

    def names(self, key: str) -> tuple[str, ...]:
        value = self._take(key, [])
        if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
            self._refuse(key, "an array of texts", value)
        return tuple(value)

    def choice(self, key: str, choices: type[_Choice], default: _Choice) -> _Choice:
        value = self._take(key, default)
        if value not in list(choices):
            self._refuse(key, f"one of {', '.join(choices)}", value)
        return choices(value)

    def _refuse(self, key: str, wanted: str, value: Any) -> None:
        raise ConfigError(f"{self._name}.{key}: must be {wanted}, got {value!r}")

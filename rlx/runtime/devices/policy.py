"""Device policies: the devices a program may use, their order, and how one of them is picked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from rlx import knobs
from rlx.base.device_names import DEVICE_PRIORITY, REFERENCE
from rlx.base.frozen import frozen
from rlx.errors import GraphError, shown
from rlx.ir.builders import public
from rlx.runtime.backend import device_name, named_by
from rlx.runtime.devices.available import available_devices, by_priority

__all__ = ["DevicePickStrategy", "DevicePolicy", "checked_policy"]


@public
@frozen
class DevicePickStrategy:
    """How the fastest of several devices is found: with 0 ``runs`` by a model of what each op costs
    on each, else by running the graph so often on each."""

    runs: int = 0

    def __post_init__(self) -> None:
        if self.runs < 0:
            raise GraphError(f"a benchmark takes 1 run or more, found {self.runs}")

    @property
    def measures(self) -> bool:
        """Whether devices are compared by running the graph."""
        return self.runs > 0

    def __str__(self) -> str:
        return f"benchmark of {self.runs} runs" if self.measures else "cost model"


def _known(names: Iterable[str]) -> tuple[str, ...]:
    """Names of devices as RLX says them; DeviceError for what is no device."""
    return tuple(dict.fromkeys(map(device_name, names)))


@public
@frozen
class DevicePolicy:
    """Devices that may be used (None: all), those that may not, and those that come first.

    Names may be any that ``Session`` takes; DeviceError for others. The interpreter, which is there
    to be compared with, is taken only where it is named.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    prefer: tuple[str, ...] = ()
    pick: DevicePickStrategy = field(default_factory=DevicePickStrategy)

    def __post_init__(self) -> None:
        object.__setattr__(self, "allow", None if self.allow is None else _known(self.allow))
        object.__setattr__(self, "deny", _known(self.deny))
        object.__setattr__(self, "prefer", _known(self.prefer))

    @staticmethod
    def all() -> DevicePolicy:
        """Every device, by priority."""
        return DevicePolicy()

    default = all

    @staticmethod
    def only(devices: Iterable[str]) -> DevicePolicy:
        """These devices and no others."""
        return DevicePolicy(allow=tuple(devices))

    def with_deny(self, devices: Iterable[str]) -> DevicePolicy:
        """Without these as well."""
        return replace(self, deny=(*self.deny, *devices))

    def with_prefer(self, devices: Iterable[str]) -> DevicePolicy:
        """With these first, in this order."""
        return replace(self, prefer=tuple(devices))

    def with_benchmark_pick(self, runs: int) -> DevicePolicy:
        """Picking by so many runs of the graph; 0 for the model of costs."""
        return replace(self, pick=DevicePickStrategy(runs))

    @staticmethod
    def from_env() -> DevicePolicy:
        """What RLX_DEVICES, RLX_DENY_DEVICES, RLX_PREFER_DEVICES and RLX_BENCHMARK_PICK say."""
        return DevicePolicy.from_env_key("RLX")

    @staticmethod
    def from_env_key(prefix: str) -> DevicePolicy:
        """As ``from_env``, by variables that begin with another prefix."""
        return DevicePolicy(
            named_by(knobs.devices.under(prefix)) or None,
            named_by(knobs.deny_devices.under(prefix)),
            named_by(knobs.prefer_devices.under(prefix)),
            DevicePickStrategy(knobs.benchmark_pick.under(prefix).get()),
        )

    def pick_strategy(self) -> DevicePickStrategy:
        """How the fastest is found."""
        return self.pick

    def allows(self, device: str) -> bool:
        """Whether a device may be used."""
        return device not in self.deny and (self.allow is None or device in self.allow)

    def probe_set(self) -> tuple[str, ...]:
        """The devices that are looked at: those that RLX knows, and those that are available."""
        return self.apply((*DEVICE_PRIORITY, *available_devices()))

    def apply(self, devices: Iterable[str]) -> tuple[str, ...]:
        """The devices, of those given, that are picked from: the preferred first, then by priority.
        Any that ``allows`` lets pass, but the interpreter only if the policy names it."""
        named = (*(self.allow or ()), *self.prefer)
        taken = (d for d in devices if d != REFERENCE or d in named)
        allowed = by_priority(d for d in taken if self.allows(d))
        rank = {d: i for i, d in enumerate(self.prefer)}
        return tuple(sorted(allowed, key=lambda d: rank.get(d, len(rank))))


def checked_policy(policy: DevicePolicy | None) -> DevicePolicy:
    """The policy itself, or that of every device for None; GraphError for what is none."""
    if policy is None:
        return DevicePolicy()
    if not isinstance(policy, DevicePolicy):
        raise GraphError(f"policy is an rlx.DevicePolicy, found {shown(policy)}")
    return policy

"""From `Machine` to QEMU's command line. Pure: no I/O and no clock, so tables and properties can test it."""

from anyvisor.drivers.qemu.translate.host import Host
from anyvisor.drivers.qemu.translate.machine import Translation, translate

__all__ = ["Host", "Translation", "translate"]

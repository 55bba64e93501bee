"""Machine -> domain XML. Pure."""

from anyvisor.drivers.libvirt.translate.host import Host
from anyvisor.drivers.libvirt.translate.machine import Translation, domain_name, translate

__all__ = ["Host", "Translation", "domain_name", "translate"]

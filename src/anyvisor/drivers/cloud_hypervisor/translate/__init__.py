"""From `Machine` to Cloud Hypervisor's VmConfig. Pure: no I/O and no clock, so tables and properties can test it."""

from anyvisor.drivers.cloud_hypervisor.translate.disks import disk_config
from anyvisor.drivers.cloud_hypervisor.translate.host import Host
from anyvisor.drivers.cloud_hypervisor.translate.machine import Translation, translate
from anyvisor.drivers.cloud_hypervisor.translate.nics import NicRequest, nic_request
from anyvisor.hri.kit.drafts import Json

__all__ = ["Host", "Json", "NicRequest", "Translation", "disk_config", "nic_request", "translate"]

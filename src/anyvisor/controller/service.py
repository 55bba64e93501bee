"""All controllers over one set of caches."""

import asyncio
from dataclasses import dataclass, field

from anyvisor.controller.installation_controller import InstallationController
from anyvisor.controller.metrics import ControllerMetrics
from anyvisor.controller.node_controller import NodeController
from anyvisor.controller.sources import open_sources
from anyvisor.controller.vm_controller import VmController
from anyvisor.controller.vmi_controller import VmiController
from anyvisor.kube.client import Client
from anyvisor.kube.events import EventRecorder


@dataclass(frozen=True, slots=True)
class Controllers:
    """All that reconcile. Two that act at once are harmless; leader election only spares work."""

    client: Client
    events: EventRecorder
    on_cluster: bool = False
    """Whether the nodes are machines of their own: decides which launch modes are allowed and whether pods of a
    node that does not answer may be ended by force."""
    image_volumes: bool = True
    """Whether pods can have images as volumes; where not, disks are copied out of them."""
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)

    async def run(self) -> None:
        """Work until cancelled."""
        async with open_sources(self.client) as sources, asyncio.TaskGroup() as group:
            self.metrics.follow(sources)
            queues = self.metrics.queues
            machines = VmController(self.client, self.events, sources, queues.of("vm"))
            instances = VmiController(
                self.client,
                self.events,
                sources,
                on_cluster=self.on_cluster,
                image_volumes=self.image_volumes,
                observer=queues.of("vmi"),
            )
            nodes = NodeController(self.client, self.events, sources, force=not self.on_cluster)
            installation = InstallationController(self.client, self.events, sources)
            group.create_task(installation.run(), name="installation controller")
            group.create_task(machines.run(), name="VM controller")
            group.create_task(instances.run(), name="VMI controller")
            group.create_task(nodes.run(), name="node controller")

"""What the zygote runs: which components an instance has, and what each of them does first.

Each imports its own part itself, in its own process (`preload` says why).
"""

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
from collections.abc import Sequence
from functools import partial

from anyvisor.embedded import added_driver, driver_process, driver_store, tls, zygote
from anyvisor.embedded.child import Child
from anyvisor.embedded.instance import Instance, InstanceError, describe, lock_instance
from anyvisor.embedded.podnetwork import choose_service_network, pod_networks
from anyvisor.embedded.podrunner import cgroups
from anyvisor.embedded.preload import preload
from anyvisor.embedded.zygote import Component
from anyvisor.hri.folders import DriverFolder
from anyvisor.hri.packages import DriverPackage, load_all

_BACKLOG = 1024


def run(instance: Instance, nodes: int, drivers: Sequence[str], ready: int) -> None:
    """Be the zygote of `instance` until told to stop. One `+` is written to `ready` when the API answers.

    Raises:
        InstanceError: the instance runs already, no port is free, or its certificates cannot be made.
    """
    lock = lock_instance(instance)
    listener = _listen(instance)
    services = instance.service_network or str(choose_service_network(instance.id))
    instance = instance._replace(api_port=listener.getsockname()[1], service_network=services)
    describe(instance)
    names = [f"node-{number}" for number in range(1, nodes + 1)]
    certificates = Child(partial(_make_certificates, instance, names))
    preload()
    packages = load_all(drivers)
    if not certificates.done():
        raise InstanceError(f"the certificates in {instance.pki_dir} could not be made; the zygote's log says why")
    context = tls.server_context(instance)
    run_control = partial(_run_control, instance, listener, context, packages, ready)
    fixed = [Component("control", run_control, instance.log("control"))]
    for name in names:
        for package in packages:
            sockets = driver_process.listen(instance, name, package.name)
            run_driver = partial(driver_process.run, instance, name, package, sockets)
            label = f"driver-{package.name}-{name}"
            fixed.append(Component(label, run_driver, instance.log(label)))

    def components() -> list[Component]:
        return [*fixed, *_of_drivers(instance, names, packages)]

    try:
        zygote.serve(components(), instance.zygote_socket, lambda: None, [lock], components)
    finally:
        _clear_run_dir(instance)
        os.close(lock)


def _make_certificates(instance: Instance, nodes: Sequence[str]) -> None:
    from anyvisor.embedded import pki

    pki.make_certificates(instance, nodes)


def _run_control(
    instance: Instance, listener: socket.socket, context: ssl.SSLContext, packages: Sequence[DriverPackage], ready: int
) -> None:
    from anyvisor.embedded import control

    control.run(instance, listener, context, packages, ready)


def _run_node(
    instance: Instance,
    name: str,
    packages: Sequence[DriverPackage],
    added: Sequence[DriverFolder],
    retired: Sequence[DriverFolder],
    *,
    first: bool,
) -> None:
    from anyvisor.embedded import node

    node.run(instance, name, packages, added, retired, first=first)


def _of_drivers(instance: Instance, nodes: Sequence[str], packages: Sequence[DriverPackage]) -> list[Component]:
    """What depends on the drivers that were added: their processes, and each node's agent, which must know them all.

    One that claims the name of a driver of ours is left out (`anyvisor driver list` says so).
    """
    driver_store.clean(instance)
    own = {str(package.manifest["driver"]) for package in packages}
    current, retired = (
        [folder for folder in folders if folder.name not in own]
        for folders in (driver_store.added(instance), driver_store.retired(instance))
    )
    known = ",".join(f"{folder.name}@{folder.version}" for folder in (*current, *retired))
    found: list[Component] = []
    for name in nodes:
        run_node = partial(_run_node, instance, name, packages, current, retired, first=name == nodes[0])
        found.append(Component(f"agent-{name}", run_node, instance.log(f"agent-{name}"), known))
        for folder in (*current, *retired):
            label = f"driver-{folder.name}-{folder.version}-{name}"
            found.append(Component(label, partial(added_driver.run, instance, name, folder), instance.log(label)))
    return found


def _clear_run_dir(instance: Instance) -> None:
    """Remove our own sockets, and what no launcher needs any more: directories, control groups, the pods' network."""
    networks = pod_networks(instance)
    if not instance.launchers_left():
        if networks is not None:
            asyncio.run(networks.clean_up())
        cgroups.remove_parents(instance.id)
        shutil.rmtree(instance.run_dir, ignore_errors=True)
        return
    for path in instance.run_dir.glob("nodes/*/**/*.sock"):
        if "pods" not in path.relative_to(instance.run_dir).parts:
            path.unlink(missing_ok=True)


def _listen(instance: Instance) -> socket.socket:
    """The API's socket, at the port of the last time where it is free.

    The zygote holds it, so that connections wait while the control process restarts.
    """
    for port in (instance.api_port, 0):
        with contextlib.suppress(OSError):
            return socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)
    raise InstanceError("no port of 127.0.0.1 can be bound: is loopback up? (`ip link set lo up`)")

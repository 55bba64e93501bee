"""`python -m anyvisor.cluster COMPONENT`: the entry point of every component's container."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m anyvisor.cluster")
    parser.add_argument("--namespace", default="anyvisor", help="the namespace of the components")
    parser.add_argument("--kubeconfig", type=Path, help="instead of the pod's own service account")
    parts = parser.add_subparsers(dest="component", required=True)
    gateway = parts.add_parser("gateway", help="webhooks and the aggregated API")
    gateway.add_argument("--service", default="anyvisor-gateway")
    gateway.add_argument("--address", default="0.0.0.0")
    gateway.add_argument("--port", type=int, default=8443)
    gateway.add_argument("--metrics-port", type=int, default=8080)
    gateway.add_argument(
        "--certificate-secret", default="", help="a Secret with its certificate; none = it makes its own"
    )
    controller = parts.add_parser("controller", help="the reconcilers, with leader election")
    controller.add_argument("--driver", action="append", default=[], help="an installed driver; may be repeated")
    controller.add_argument("--image", action="append", default=[], metavar="DRIVER=IMAGE", help="its launcher image")
    controller.add_argument("--health-port", type=int, default=8080)
    agent = parts.add_parser("agent", help="the machines of one node")
    agent.add_argument("--node", required=True)
    agent.add_argument("--address", required=True, help="where the gateway reaches this agent")
    agent.add_argument("--port", type=int, default=8444)
    agent.add_argument("--state", type=Path, default=Path("/var/lib/anyvisor"))
    agent.add_argument("--host-state", default="", help="where --state is on the host, if elsewhere")
    agent.add_argument("--host-dev", type=Path, default=Path("/host/dev"))
    agent.add_argument("--links", type=Path, default=Path("/run/anyvisor/drivers"))
    agent.add_argument("--tls", type=Path, required=True)
    agent.add_argument("--device-plugins", type=Path, help="the kubelet's directory; none = no plugins")
    agent.add_argument("--driver", action="append", default=[])
    driver = parts.add_parser("driver", help="one hypervisor driver of one node")
    driver.add_argument("--driver", required=True)
    driver.add_argument("--sockets", type=Path, required=True)
    driver.add_argument("--state", type=Path, required=True)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Be one component until SIGTERM."""
    parser = _parser()
    options = parser.parse_args(arguments)
    match options.component:
        case "gateway":
            from anyvisor.cluster import gateway

            gateway.run(
                gateway.GatewayConfig(
                    namespace=options.namespace,
                    service=options.service,
                    address=options.address,
                    port=options.port,
                    metrics_port=options.metrics_port,
                    certificate_secret=options.certificate_secret,
                    kubeconfig=options.kubeconfig,
                )
            )
        case "controller":
            from anyvisor.cluster import controller

            controller.run(
                controller.ControllerConfig(
                    namespace=options.namespace,
                    drivers=options.driver,
                    images=_images(parser, options.image),
                    health_port=options.health_port,
                    kubeconfig=options.kubeconfig,
                )
            )
        case "agent":
            from anyvisor.cluster import agent

            agent.run(
                agent.ClusterAgentConfig(
                    namespace=options.namespace,
                    node=options.node,
                    address=options.address,
                    port=options.port,
                    state=options.state,
                    host_state=options.host_state,
                    host_dev=options.host_dev,
                    links=options.links,
                    tls=options.tls,
                    device_plugins=options.device_plugins,
                    drivers=options.driver,
                    kubeconfig=options.kubeconfig,
                )
            )
        case "driver":
            from anyvisor.cluster import driver

            driver.run(options.driver, options.sockets, options.state)
        case _:
            parser.error(f"there is no component {options.component}")


def _images(parser: argparse.ArgumentParser, pairs: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        driver, equals, image = pair.partition("=")
        if not (driver and equals and image):
            parser.error(f"--image {pair!r} is not DRIVER=IMAGE")
        found[driver] = image
    return found


if __name__ == "__main__":
    main()

"""Rules for what the guest shares with its pod: names, DNS, probes, eviction, the way to start."""

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.names import LABEL_RULE, SUBDOMAIN_RULE, is_ip, is_label, is_subdomain
from anyvisor.admission.result import Causes
from anyvisor.admission.values import Obj, items, mapping, shown, strings, text
from anyvisor.admission.view import Spec

EVICTION_STRATEGIES = ("None", "LiveMigrate", "LiveMigrateIfPossible", "External")
PROBES = ("readinessProbe", "livenessProbe")
HANDLERS = ("httpGet", "tcpSocket", "exec", "guestAgentPing")

_MAX_NAMESERVERS = 3
_MAX_SEARCHES = 6
_MAX_SEARCH_CHARACTERS = 256


def host_names(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """The guest's host name and subdomain."""
    del config
    host, subdomain = text(spec.raw.get("hostname")), text(spec.raw.get("subdomain"))
    if host and not is_label(host):
        out.invalid(f"{spec.at}.hostname", f"{spec.at}.hostname is {host!r}; it must be {LABEL_RULE}")
    if subdomain and not is_subdomain(subdomain):
        out.invalid(f"{spec.at}.subdomain", f"{spec.at}.subdomain is {subdomain!r}; it must be {SUBDOMAIN_RULE}")


def start_strategy(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Starting paused, which does not go with a liveness probe."""
    del config
    strategy, at = spec.raw.get("startStrategy"), f"{spec.at}.startStrategy"
    if strategy is None:
        return
    if strategy != "Paused":
        out.invalid(at, f"{at} is {shown(strategy)}; the only strategy is Paused: use it or remove the field")
    elif spec.raw.get("livenessProbe") is not None:
        out.invalid(at, f"{at}: a guest that starts paused fails its livenessProbe; keep one of the two")


def probes(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Probes have one handler each; those over the network need the pod network."""
    del config
    on_pod_network = any(network.get("pod") is not None for network in spec.networks)
    for name in PROBES:
        if spec.raw.get(name) is None:
            continue
        probe, at = mapping(spec.raw[name]), f"{spec.at}.{name}"
        handlers = [handler for handler in HANDLERS if probe.get(handler) is not None]
        if len(handlers) > 1:
            out.invalid(at, f"{at} has several handlers ({', '.join(handlers)}); keep one")
        elif not handlers:
            out.required(at, f"{at} has no handler; give one of {', '.join(HANDLERS)}")
        if on_pod_network:
            continue
        for handler in ("httpGet", "tcpSocket"):
            if handler in handlers:
                out.invalid(
                    f"{at}.{handler}",
                    f"{at}.{handler} reaches the guest over the pod network, which it has not joined; "
                    "add a pod network, or use exec or guestAgentPing",
                )


def eviction(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """A known eviction strategy, of the guest or of the cluster."""
    written = spec.raw.get("evictionStrategy")
    strategy = written if written is not None else config.eviction_strategy.value
    if strategy not in EVICTION_STRATEGIES:
        at = f"{spec.at}.evictionStrategy"
        out.invalid(at, f"{at} is {shown(strategy)}; use one of {', '.join(EVICTION_STRATEGIES)}")


def dns(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """The resolver settings; their causes carry the bare field names that this API gives them."""
    del config
    at, written = f"{spec.at}.dnsConfig", spec.raw.get("dnsConfig")
    servers = strings(mapping(written).get("nameservers"))
    if spec.raw.get("dnsPolicy") == "None":
        if written is None:
            out.required(at, f"{at} is missing; the dnsPolicy None takes all settings from it")
            return
        if not servers:
            out.required("nameservers", f"{at}.nameservers is empty; the dnsPolicy None needs at least one", at)
            return
    if written is not None:
        _dns_config(at, mapping(written), servers, out)


def _dns_config(at: str, settings: Obj, servers: list[str], out: Causes) -> None:
    path = f"{at}.nameservers"
    if len(servers) > _MAX_NAMESERVERS:
        out.invalid("nameservers", f"{path} has {len(servers)} entries; at most {_MAX_NAMESERVERS} are used", path)
    for index, server in enumerate(servers):
        if not is_ip(server):
            out.invalid("nameservers", f"{path}[{index}] is {server!r}; give an IP address", f"{path}[{index}]")
    path, searches = f"{at}.searches", strings(settings.get("searches"))
    if len(searches) > _MAX_SEARCHES:
        out.invalid("searchDomains", f"{path} has {len(searches)} entries; at most {_MAX_SEARCHES} are possible", path)
    if len(" ".join(searches)) > _MAX_SEARCH_CHARACTERS:
        out.invalid(
            "searchDomains", f"{path} is longer than {_MAX_SEARCH_CHARACTERS} characters together; shorten it", path
        )
    for index, search in enumerate(searches):
        if not is_subdomain(search):
            out.invalid(
                "searchDomains", f"{path}[{index}] is {search!r}; it must be {SUBDOMAIN_RULE}", f"{path}[{index}]"
            )
    for index, option in enumerate(items(settings.get("options"))):
        if not text(option.get("name")):
            path = f"{at}.options[{index}].name"
            out.invalid("options", f"{path} is missing; name the resolver option", path)

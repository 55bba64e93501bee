"""The parts of a VMI spec that most rules read, taken out once."""

from dataclasses import dataclass

from anyvisor.admission.values import Obj, items, mapping, text


@dataclass(frozen=True, slots=True)
class Spec:
    """A VMI spec (of a VMI or in a template) and where it stands: `at` is its path, such as `spec.template.spec`."""

    at: str
    raw: Obj
    domain: Obj
    devices: Obj
    cpu: Obj
    memory: Obj
    requests: Obj
    limits: Obj
    disks: list[Obj]
    interfaces: list[Obj]
    networks: list[Obj]
    volumes: list[Obj]
    architecture: str

    @classmethod
    def of(cls, spec: Obj, at: str) -> "Spec":
        """Read a spec; whatever has the wrong kind reads as absent."""
        domain = mapping(spec.get("domain"))
        devices = mapping(domain.get("devices"))
        resources = mapping(domain.get("resources"))
        return cls(
            at=at,
            raw=spec,
            domain=domain,
            devices=devices,
            cpu=mapping(domain.get("cpu")),
            memory=mapping(domain.get("memory")),
            requests=mapping(resources.get("requests")),
            limits=mapping(resources.get("limits")),
            disks=items(devices.get("disks")),
            interfaces=items(devices.get("interfaces")),
            networks=items(spec.get("networks")),
            volumes=items(spec.get("volumes")),
            architecture=text(spec.get("architecture")),
        )

"""What one pass over a VirtualMachineInstance sees, and what it builds while it runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from anyvisor.api.meta import Json, annotations, list_at, object_at, text_at
from anyvisor.controller import words
from anyvisor.controller.duplicate import duplicate
from anyvisor.controller.launch import Launch, Refusal
from anyvisor.controller.outcome import Draft, Problem
from anyvisor.controller.settings import Settings


def nothing() -> dict[str, Json]:
    """An empty cache."""
    return {}


@dataclass(frozen=True, slots=True)
class VmiWorld:
    """All that decides a pass; nothing else does."""

    vmi: Json
    now: datetime
    plan: Callable[[Json], Launch | Refusal]
    """Plans the instance on its hypervisor class; called once, when its pod is created."""
    pods: Sequence[Json] = ()
    """Pods of the namespace that the VMI or one of its pods controls."""
    owner: Json | None = None
    """The VirtualMachine of the name that the VMI's controller reference gives, if it exists."""
    data_volumes: Mapping[str, Json] = field(default_factory=nothing)
    claims: Mapping[str, Json] = field(default_factory=nothing)
    """Claims of the VMI's namespace, by name."""
    storage_classes: Mapping[str, Json] = field(default_factory=nothing)
    storage_profiles: Mapping[str, Json] = field(default_factory=nothing)
    importers: Sequence[Json] = ()
    """The CDI objects: whether an importer of disk images is installed."""
    importer_config: Json | None = None
    migrations: Sequence[Json] = ()
    nodes: Sequence[Json] = ()
    namespace_labels: Mapping[str, str] = field(default_factory=dict[str, str])
    quotas: Sequence[Json] = ()
    attachments: Mapping[str, Json] | None = field(default_factory=nothing)
    """NetworkAttachmentDefinitions by `namespace/name`, as far as the instance names them; None = no such kind."""
    settings: Settings = field(default_factory=Settings)
    on_cluster: bool = False
    """Whether kubelets run the pods."""
    image_volumes: bool = True
    """Whether a pod can have an image as a volume."""
    launcher_image: str = ""
    """The image that a launcher of this instance would have if it were made now; empty = unknown."""
    vsock_id: Callable[[], int] = lambda: 3
    """An unused context id of virtio sockets."""


class UnfinishedPassError(Exception):
    """The status cannot be told yet; the pass is tried again. Says why."""


@dataclass(slots=True)
class VmiPass:
    """The state of one pass over an instance."""

    world: VmiWorld
    vmi: Json
    """The copy that is written at the end."""
    draft: Draft = field(default_factory=Draft)
    problem: Problem | None = None
    """What the Synchronized condition will say."""

    @property
    def phase(self) -> str:
        """The phase at the beginning of the pass, which decides what the pass may do."""
        return text_at(self.world.vmi, "status", "phase")

    @property
    def unprocessed(self) -> bool:
        """Whether no pod was made yet, as far as the status tells."""
        return self.phase in {words.UNSET, words.PENDING}

    @property
    def final(self) -> bool:
        """Whether the run is over."""
        return self.phase in {words.SUCCEEDED, words.FAILED}

    @property
    def status(self) -> Json:
        """The status that is being written."""
        return self.vmi["status"]

    @property
    def conditions(self) -> list[Json]:
        """The conditions that are being written."""
        return self.status.setdefault("conditions", [])

    @property
    def migration_target(self) -> bool:
        """Whether the instance receives a guest from another cluster."""
        return annotations(self.world.vmi).get(words.CREATE_MIGRATION_TARGET) == "true"

    @property
    def waits_for_source(self) -> bool:
        """Whether a receiving instance does not know its node yet."""
        labels = object_at(self.world.vmi, "metadata", "labels")
        return self.migration_target and words.MIGRATION_TARGET_NODE_LABEL not in labels

    @property
    def marked_for_eviction(self) -> bool:
        """Whether the instance was asked to leave its node."""
        return bool(text_at(self.vmi, "status", "evacuationNodeName"))


def begin(world: VmiWorld) -> VmiPass:
    """Start a pass on a working copy."""
    vmi = duplicate(world.vmi)
    vmi.setdefault("status", {})
    return VmiPass(world, vmi)


def spec_volumes(vmi: Json) -> list[Json]:
    """The volumes of the instance."""
    return list_at(vmi, "spec", "volumes")


def migrating(run: VmiPass) -> bool:
    """Whether the guest is moving between nodes."""
    state = object_at(run.vmi, "status", "migrationState")
    return bool(state.get("startTimestamp")) and not state.get("endTimestamp")

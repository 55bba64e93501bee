"""Evictions of launcher pods: the admission room decides, and what it decides about the VMI is written here."""

import uuid
from datetime import UTC, datetime
from typing import Any

from anyvisor.admission.dispatch import admit
from anyvisor.admission.result import AdmissionRequest, AdmissionResult
from anyvisor.api.meta import name, namespace
from anyvisor.embedded.world import ServerWorld
from anyvisor.kube.client import Client, PatchType
from anyvisor.kube.errors import ApiError
from anyvisor.kube.resources import VMIS

Json = dict[str, Any]


class Evictions:
    """Answers `pods/eviction`; `client` is set once the server that it uses exists."""

    def __init__(self, world: ServerWorld) -> None:
        self._world = world
        self.client: Client | None = None

    async def ask(self, pod: Json, eviction: Json) -> str:
        """Why the pod may not be evicted (a sentence that programs read, too); empty when it may."""
        answer = admit(self._question(pod, eviction), self._world.config())
        if answer.allowed:
            return ""
        try:
            await self._carry_out(answer)
        except ApiError as error:
            return f"the evacuation could not be asked for: {error}; try again"
        return answer.message

    def _question(self, pod: Json, eviction: Json) -> AdmissionRequest:
        return AdmissionRequest(
            operation="CREATE",
            kind="Eviction",
            object=eviction,
            new_uuid=lambda: str(uuid.uuid4()),
            now=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            namespace=namespace(pod),
            name=name(pod),
            related=self._world,
        )

    async def _carry_out(self, answer: AdmissionResult) -> None:
        if self.client is None:
            return
        for effect in answer.effects:
            patch: list[Json] = [dict(step) for step in effect.patch]
            await self.client.patch(VMIS, effect.name, effect.namespace, patch, PatchType.JSON, dry_run=effect.dry_run)

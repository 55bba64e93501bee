"""Makes the launcher pod, once everything that it needs is there, and deletes pods at the end."""

from typing import Final

from anyvisor.api.meta import Json, is_deleting, list_at, name, text_at
from anyvisor.controller import words
from anyvisor.controller.launch import Launch, Refusal
from anyvisor.controller.outcome import Create, Delete, EventType, Problem, normal
from anyvisor.controller.podspec.render import ClaimMissingError, PodContext, RenderError, render
from anyvisor.controller.podspec.resources import Tenancy
from anyvisor.controller.vmi import claims, hotplug, pods, state_claim, topology
from anyvisor.controller.vmi.world import VmiPass
from anyvisor.kube.resources import PODS

LATE_BINDINGS: Final = frozenset({"macvtap", "slirp", "passt"})
"""Interface bindings that were taken out of the API and are refused when the pod is made."""
TEMPORARY_ATTEMPT: Final = -1
"""Makes the name of the pod that is a claim's first consumer differ from the launcher's."""


def sync(run: VmiPass, pod: Json | None) -> Json | None:
    """Bring the instance's pods to what its phase asks for; returns the pod that carries it now."""
    if is_deleting(run.world.vmi):
        delete_all(run)
        return pod
    if run.final:
        _delete_attachments(run, pod)
        return pod
    _delete_orphaned_attachments(run)
    state = claims.all_ready(run)
    if state is None or run.waits_for_source:
        return pod
    if pod is None:
        return _create(run, state) if run.unprocessed else None
    if not state.waits_for_consumer:
        _delete_temporary(run, pod)
    return pod


def _create(run: VmiPass, state: claims.Readiness) -> Json | None:
    if topology.waits_for_hint(run) or not state.ready:
        return None
    if _migration_is_active(run):
        message = "A migration of an earlier instance of this name is still active; the pod is made when it ends."
        run.problem = Problem(words.FAILED_CREATE, message)
        return None
    if not state_claim.ensure(run):
        return None
    launch = run.world.plan(run.vmi)
    if isinstance(launch, Refusal):
        _refuse(run, launch)
        return None
    pod = _rendered(run, launch, temporary=state.waits_for_consumer)
    if pod is None:
        return None
    done = normal(words.SUCCESSFUL_CREATE, f"Created launcher pod {name(pod)}.")
    run.draft.writes.append(Create(PODS, pod, done, words.FAILED_CREATE))
    return pod


def _refuse(run: VmiPass, refusal: Refusal) -> None:
    """Say once that and why no hypervisor runs the instance; looked at again when one of them changes."""
    run.problem = Problem(refusal.reason, refusal.message, retry=False)
    known = [one for one in list_at(run.world.vmi, "status", "conditions") if one["type"] == words.SYNCHRONIZED]
    if not any(one.get("message") == refusal.message for one in known):
        run.draft.event(EventType.WARNING, refusal.reason, refusal.message)


def _rendered(run: VmiPass, launch: Launch, *, temporary: bool) -> Json | None:
    found = state_claim.find(run) if state_claim.is_needed(run.world.vmi) else None
    context = PodContext(
        settings=run.world.settings,
        claims=run.world.claims,
        state_claim=name(found) if found is not None else "",
        tenancy=Tenancy(run.world.namespace_labels, run.world.quotas),
        attempt=TEMPORARY_ATTEMPT if temporary else 0,
        temporary=temporary,
        attachments=run.world.attachments,
        on_cluster=run.world.on_cluster,
        image_volumes=run.world.image_volumes,
    )
    try:
        pod = render(run.vmi, launch, context)
    except ClaimMissingError as cause:
        message = f"The launcher pod cannot be made: {cause}."
        run.draft.event(EventType.WARNING, words.PVC_NOT_FOUND, message)
        run.problem = Problem(words.PVC_NOT_FOUND, message, retry=False)
        return None
    except RenderError as cause:
        run.problem = Problem(words.FAILED_CREATE, f"The launcher pod cannot be made: {cause}.", retry=False)
        return None
    for interface in list_at(run.world.vmi, "spec", "domain", "devices", "interfaces"):
        unserved = LATE_BINDINGS & set(interface)
        if unserved:
            message = (
                f"Interface {interface.get('name')!r} has binding {min(unserved)}, which is no longer served; "
                "use bridge, masquerade, sriov or a registered binding plugin."
            )
            run.problem = Problem("FailedCreateValidation", message)
            return None
    return pod


def _migration_is_active(run: VmiPass) -> bool:
    ended = {"", "Pending", words.SUCCEEDED, words.FAILED}
    return any(
        text_at(one, "spec", "vmiName") == name(run.world.vmi) and text_at(one, "status", "phase") not in ended
        for one in run.world.migrations
    )


def delete_all(run: VmiPass) -> None:
    """Delete every pod of the instance, except those that are on their way out already."""
    for pod in pods.owned(run):
        if is_deleting(pod) and not pods.is_down(pod):
            continue
        done = normal(words.SUCCESSFUL_DELETE, f"Deleted launcher pod {name(pod)}.")
        run.draft.writes.append(Delete(PODS, pod, done, words.FAILED_DELETE))


def _delete_attachments(run: VmiPass, pod: Json | None) -> None:
    for attachment in pods.attachments(run, pod) if pod is not None else []:
        hotplug.delete(run, attachment)


def _delete_orphaned_attachments(run: VmiPass) -> None:
    for pod in pods.owned(run):
        if pods.is_down(pod):
            _delete_attachments(run, pod)


def _delete_temporary(run: VmiPass, pod: Json) -> None:
    """A claim that is filled needs its first consumer no longer; whatever state that pod is in, it may go."""
    for temporary in (*pods.owned(run), *pods.attachments(run, pod)):
        if pods.is_temporary(temporary) and not is_deleting(temporary):
            message = f"Deleted pod {name(temporary)}, which made the first consumer of a claim known."
            done = normal(words.SUCCESSFUL_DELETE, message)
            run.draft.writes.append(Delete(PODS, temporary, done, words.FAILED_DELETE, grace=0))

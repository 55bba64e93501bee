"""The KubeVirt object: which one is in force, and the state that clients look for in it. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from anyvisor import __version__
from anyvisor.api.meta import Json, generation, is_deleting, name, namespace, object_at, text_at, uid
from anyvisor.controller.conditions import make, remove, update
from anyvisor.controller.duplicate import duplicate
from anyvisor.controller.outcome import Change, Outcome
from anyvisor.kube.resources import KUBEVIRTS

READY: Final = "AllComponentsReady"
DEPLOYED: Final = (("Available", "True"), ("Progressing", "False"), ("Degraded", "False"), ("Created", "True"))
SYNCHRONIZED: Final = "Synchronized"
VERSIONS: Final = ("observedKubeVirtVersion", "targetKubeVirtVersion", "operatorVersion")


def in_force(installations: Sequence[Json]) -> Json | None:
    """The installation that counts: the oldest one that stays."""
    staying = [one for one in installations if not is_deleting(one)]
    return min(staying or installations, key=_age, default=None)


def _age(installation: Json) -> tuple[str, str, str]:
    return text_at(installation, "metadata", "creationTimestamp"), namespace(installation), name(installation)


def reconcile_installation(installation: Json, others: Sequence[Json], now: datetime) -> Outcome:
    """Tell that the installation serves, and which generation of its configuration; or that another one does.

    The parts that serve it are whoever runs this: there is nothing to deploy.
    """
    chosen = in_force([installation, *others])
    after = duplicate(installation)
    status = after.setdefault("status", {})
    conditions = status.setdefault("conditions", [])
    if chosen is not None and uid(chosen) != uid(installation):
        message = (
            f"KubeVirt object {namespace(chosen)}/{name(chosen)} is in force, and there can be only one; "
            "move this one's configuration there and delete it"
        )
        update(conditions, make(SYNCHRONIZED, "False", "ExistingDeployment", message, now))
    else:
        _tell_deployed(installation, status, conditions, now)
    if after == installation:
        return Outcome()
    return Outcome((Change(KUBEVIRTS, installation, after, status=True),))


def _tell_deployed(installation: Json, status: Json, conditions: list[Json], now: datetime) -> None:
    remove(conditions, SYNCHRONIZED)
    for kind, holds in DEPLOYED:
        update(conditions, make(kind, holds, READY, "All components are ready.", now))
    status |= dict.fromkeys(VERSIONS, __version__)
    status |= {"phase": "Deployed", "observedGeneration": generation(installation)}


def configuration_of(installations: Sequence[Json]) -> Json:
    """The configuration in force; an empty one while there is no installation."""
    chosen = in_force(installations)
    return object_at(chosen, "spec", "configuration") if chosen is not None else {}

"""What the cluster's API server can, found out by asking it for nothing real."""

import logging
from typing import Final

from anyvisor.api.meta import Json
from anyvisor.kube.client import Client
from anyvisor.kube.errors import ApiError, Invalid
from anyvisor.kube.resources import PODS

log = logging.getLogger(__name__)

_PROBE: Final = "anyvisor-image-volume"


async def has_image_volumes(client: Client, namespace: str) -> bool:
    """Whether a pod can have an image as a volume (KEP-4639).

    An API server without the feature drops the field, and then refuses a volume that has no source. Where the answer
    is another one, as by a quota, the feature is taken to be there: newer clusters have it.
    """
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _PROBE, "namespace": namespace},
        "spec": {
            "containers": [{"name": "none", "image": "none"}],
            "volumes": [{"name": "image", "image": {"reference": "none"}}],
        },
    }
    try:
        await client.create(PODS, pod, namespace, dry_run=True)
    except Invalid as refused:
        log.info("images cannot be volumes of pods here, so disks are copied out of them: %s", refused)
        return False
    except ApiError as error:
        log.info("whether images can be volumes of pods is not known, so they are taken to be: %s", error)
    return True

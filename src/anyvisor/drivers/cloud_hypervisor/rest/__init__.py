"""Cloud Hypervisor's REST API over a connected unix socket."""

from anyvisor.drivers.cloud_hypervisor.rest.client import (
    CALL_SECONDS,
    RestClient,
    RestClosed,
    RestError,
    RestRefused,
    RestTimeout,
    closed_within,
)
from anyvisor.drivers.cloud_hypervisor.rest.protocol import (
    MAX_REQUEST_BODY,
    ProtocolError,
    RequestTooLarge,
    Response,
    ResponseReader,
    request,
)

__all__ = [
    "CALL_SECONDS",
    "MAX_REQUEST_BODY",
    "ProtocolError",
    "RequestTooLarge",
    "Response",
    "ResponseReader",
    "RestClient",
    "RestClosed",
    "RestError",
    "RestRefused",
    "RestTimeout",
    "closed_within",
    "request",
]

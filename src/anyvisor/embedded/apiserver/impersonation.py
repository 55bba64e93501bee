"""Impersonation: a user who may acts as another (`kubectl --as`)."""

from collections.abc import Callable, Mapping
from urllib.parse import unquote

from anyvisor.embedded.apiserver.identity import AUTHENTICATED, Identity
from anyvisor.embedded.apiserver.rbac import Attributes
from anyvisor.embedded.apiserver.status import bad_request

Authorize = Callable[[Identity, Attributes], None]

USER = "impersonate-user"
GROUP = "impersonate-group"
UID = "impersonate-uid"
EXTRA = "impersonate-extra-"
SEPARATOR = "\n"
"""Stands between the values of a header that came several times."""
ACCOUNT = "system:serviceaccount:"


def impersonated(identity: Identity, headers: Mapping[str, str], authorize: Authorize) -> Identity:
    """Return whom the request acts as. Raises a 400 or 403 Status."""
    if not any(name.startswith("impersonate-") for name in headers):
        return identity
    user = headers.get(USER, "")
    if not user:
        raise bad_request("impersonation needs the header Impersonate-User beside groups, uid and extra")
    _authorize_user(identity, user, authorize)
    groups = [group for group in headers.get(GROUP, "").split(SEPARATOR) if group]
    for group in groups:
        authorize(identity, Attributes("impersonate", "", "groups", name=group))
    uid = headers.get(UID, "")
    if uid:
        authorize(identity, Attributes("impersonate", "authentication.k8s.io", "uids", name=uid))
    extra: dict[str, tuple[str, ...]] = {}
    for name, value in headers.items():
        if name.startswith(EXTRA):
            key = unquote(name.removeprefix(EXTRA))
            extra[key] = tuple(value.split(SEPARATOR))
            for item in extra[key]:
                authorize(identity, Attributes("impersonate", "authentication.k8s.io", "userextras", key, name=item))
    if user.startswith(ACCOUNT) and not groups:
        namespace = user.removeprefix(ACCOUNT).partition(":")[0]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    return Identity(user, tuple(dict.fromkeys([*groups, AUTHENTICATED])), uid, extra)


def _authorize_user(identity: Identity, user: str, authorize: Authorize) -> None:
    if user.startswith(ACCOUNT) and user.count(":") == 3:
        namespace, _, name = user.removeprefix(ACCOUNT).partition(":")
        authorize(identity, Attributes("impersonate", "", "serviceaccounts", namespace=namespace, name=name))
    else:
        authorize(identity, Attributes("impersonate", "", "users", name=user))

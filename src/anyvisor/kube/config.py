"""Where an API server is and who we are there: from a kubeconfig, or from a pod's service account."""

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ConfigError(Exception):
    """The configuration is missing, unreadable or uses something that is not supported."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """What the HTTPS transport needs to know; secrets are not shown by `repr`."""

    server: str
    """Base URL, without a slash at its end."""
    ca: bytes | None = None
    """PEM; None = the machine's own roots."""
    insecure: bool = False
    server_name: str | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    token: str | None = None
    token_file: Path | None = None
    """Read again as it is rotated; wins over `token`."""
    username: str | None = None
    password: str | None = None
    proxy: str | None = None

    def __repr__(self) -> str:
        return f"ClientConfig(server={self.server!r})"


def load(path: Path | None = None, context: str | None = None, env: Mapping[str, str] | None = None) -> ClientConfig:
    """Load `path`, else the first file of `$KUBECONFIG`, else `~/.kube/config`, else the pod's own account.

    Raises ConfigError.
    """
    environ = os.environ if env is None else env
    if path is not None:
        return from_kubeconfig(path, context)
    for name in environ.get("KUBECONFIG", "").split(os.pathsep):
        if name and Path(name).is_file():
            return from_kubeconfig(Path(name), context)
    default = Path(environ.get("HOME", "/")) / ".kube" / "config"
    if default.is_file():
        return from_kubeconfig(default, context)
    if "KUBERNETES_SERVICE_HOST" in environ:
        return in_cluster(environ)
    raise ConfigError(
        "no cluster is configured: neither $KUBECONFIG nor ~/.kube/config names a file and this is no pod; "
        "pass a kubeconfig"
    )


def in_cluster(env: Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> ClientConfig:
    """Use the service account that the kubelet mounted into this pod."""
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError("KUBERNETES_SERVICE_HOST is not set: this process runs in no pod")
    if not (account / "token").is_file():
        raise ConfigError(f"{account}/token is missing: does the pod set automountServiceAccountToken: false?")
    address = f"[{host}]" if ":" in host else host
    return ClientConfig(
        server=f"https://{address}:{port}",
        ca=(account / "ca.crt").read_bytes(),
        token_file=account / "token",
    )


def from_kubeconfig(path: Path, context: str | None = None) -> ClientConfig:
    """Read one kubeconfig file; relative paths in it are relative to it. Raises ConfigError."""
    document = _load_yaml(path)
    chosen = context or document.get("current-context")
    if not isinstance(chosen, str) or not chosen:
        raise ConfigError(f"{path}: current-context is not set; set it or pass a context")
    entry = _named(path, document, "contexts", "context", chosen)
    cluster = _named(path, document, "clusters", "cluster", str(entry.get("cluster")))
    user_name = entry.get("user")
    user = _named(path, document, "users", "user", str(user_name)) if user_name else {}
    for field in ("exec", "auth-provider"):
        if user.get(field):
            raise ConfigError(f"{path}: users[{user_name}].user.{field} is not supported; use a token or certificate")
    return _config(path, cluster, user)


def _config(path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> ClientConfig:
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise ConfigError(f"{path}: clusters[].cluster.server must be an http(s) URL, not {server!r}")
    token_file = user.get("tokenFile")
    return ClientConfig(
        server=server.rstrip("/"),
        ca=_data(path, cluster, "certificate-authority"),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        server_name=cluster.get("tls-server-name"),
        certificate=_data(path, user, "client-certificate"),
        key=_data(path, user, "client-key"),
        token=user.get("token"),
        token_file=path.parent / str(token_file) if token_file else None,
        username=user.get("username"),
        password=user.get("password"),
        proxy=cluster.get("proxy-url"),
    )


def _load_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        document: object = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is no YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: is no kubeconfig (not a mapping)")
    return cast("dict[str, Any]", document)


def _named(path: Path, document: dict[str, Any], section: str, key: str, name: str) -> dict[str, Any]:
    for entry in cast("list[Any]", document.get(section) or []):
        if isinstance(entry, dict) and cast("dict[str, Any]", entry).get("name") == name:
            value = cast("dict[str, Any]", entry).get(key)
            return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    raise ConfigError(f"{path}: {section} has no entry named {name!r}")


def _data(path: Path, section: dict[str, Any], name: str) -> bytes | None:
    inline, file = section.get(f"{name}-data"), section.get(name)
    try:
        if inline:
            return base64.b64decode(str(inline), validate=True)
        return (path.parent / str(file)).read_bytes() if file else None
    except binascii.Error as error:
        raise ConfigError(f"{path}: {name}-data is no base64: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path}: {name}: {file} cannot be read: {error.strerror}") from error

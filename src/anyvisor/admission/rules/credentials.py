"""Rules for access credentials: SSH keys and passwords that are brought into the guest."""

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.result import Causes
from anyvisor.admission.values import Obj, items, mapping
from anyvisor.admission.view import Spec

_METHODS = {"noCloud": "cloudInitNoCloud", "configDrive": "cloudInitConfigDrive", "qemuGuestAgent": ""}


def access_credentials(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Each entry is one credential, from one source, brought in one way."""
    del config
    for index, entry in enumerate(items(spec.raw.get("accessCredentials"))):
        at = f"{spec.at}.accessCredentials[{index}]"
        key, password = entry.get("sshPublicKey"), entry.get("userPassword")
        if (key is None) == (password is None):
            out.invalid(at, f"{at} needs exactly one of sshPublicKey and userPassword")
        if key is not None:
            _ssh_key(f"{at}.sshPublicKey", mapping(key), spec, out)
        if password is not None:
            _source(f"{at}.userPassword", mapping(password), out)
            if mapping(mapping(password).get("propagationMethod")).get("qemuGuestAgent") is None:
                where = f"{at}.userPassword.propagationMethod"
                out.invalid(where, f"{where} is missing; a password is set by the guest's agent: qemuGuestAgent: {{}}")


def _ssh_key(at: str, key: Obj, spec: Spec, out: Causes) -> None:
    method = mapping(key.get("propagationMethod"))
    where = f"{at}.propagationMethod"
    given = [name for name in _METHODS if method.get(name) is not None]
    for name in given:
        volume = _METHODS[name]
        if volume and not any(v.get(volume) is not None for v in spec.volumes):
            out.invalid(where, f"{where}.{name} needs a volume of the kind {volume}; add one", f"{where}.{name}")
    if "qemuGuestAgent" in given and not mapping(method["qemuGuestAgent"]).get("users"):
        users = f"{where}.qemuGuestAgent.users"
        out.invalid(users, f"{users} is empty; name at least one user of the guest")
    _source(at, key, out)
    if len(given) != 1:
        out.invalid(where, f"{where} needs exactly one of {', '.join(_METHODS)}")


def _source(at: str, credential: Obj, out: Causes) -> None:
    if mapping(credential.get("source")).get("secret") is None:
        out.invalid(f"{at}.source", f"{at}.source is missing; name a Secret: source.secret.secretName")

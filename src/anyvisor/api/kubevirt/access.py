"""Undocumented."""

from typing import Annotated

from anyvisor.api.meta import Model
from anyvisor.api.wire import Schema


class ConfigDriveSSHPublicKeyAccessCredentialPropagation(Model, frozen=True, kw_only=True):
    """Undocumented."""


class NoCloudSSHPublicKeyAccessCredentialPropagation(Model, frozen=True, kw_only=True):
    """Undocumented."""


class QemuGuestAgentSSHPublicKeyAccessCredentialPropagation(Model, frozen=True, kw_only=True):
    """Undocumented."""

    users: Annotated[tuple[str, ...], Schema(unique=True)]


class SSHPublicKeyAccessCredentialPropagationMethod(Model, frozen=True, kw_only=True):
    """Undocumented."""

    config_drive: ConfigDriveSSHPublicKeyAccessCredentialPropagation | None = None
    no_cloud: NoCloudSSHPublicKeyAccessCredentialPropagation | None = None
    qemu_guest_agent: QemuGuestAgentSSHPublicKeyAccessCredentialPropagation | None = None


class AccessCredentialSecretSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    secret_name: str


class SSHPublicKeyAccessCredentialSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    secret: AccessCredentialSecretSource | None = None


class SSHPublicKeyAccessCredential(Model, frozen=True, kw_only=True):
    """Undocumented."""

    propagation_method: SSHPublicKeyAccessCredentialPropagationMethod
    source: SSHPublicKeyAccessCredentialSource


class QemuGuestAgentUserPasswordAccessCredentialPropagation(Model, frozen=True, kw_only=True):
    """Undocumented."""


class UserPasswordAccessCredentialPropagationMethod(Model, frozen=True, kw_only=True):
    """Undocumented."""

    qemu_guest_agent: QemuGuestAgentUserPasswordAccessCredentialPropagation | None = None


class UserPasswordAccessCredentialSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    secret: AccessCredentialSecretSource | None = None


class UserPasswordAccessCredential(Model, frozen=True, kw_only=True):
    """Undocumented."""

    propagation_method: UserPasswordAccessCredentialPropagationMethod
    source: UserPasswordAccessCredentialSource


class AccessCredential(Model, frozen=True, kw_only=True):
    """Undocumented."""

    ssh_public_key: SSHPublicKeyAccessCredential | None = None
    user_password: UserPasswordAccessCredential | None = None

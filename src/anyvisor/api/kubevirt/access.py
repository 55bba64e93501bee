"""Credentials that are put into a guest."""

from typing import Annotated

from anyvisor.api.meta import Model
from anyvisor.api.wire import Schema


class ConfigDriveSSHPublicKeyAccessCredentialPropagation(Model, frozen=True, kw_only=True):
    """By the cloud-init config drive."""


class NoCloudSSHPublicKeyAccessCredentialPropagation(Model, frozen=True, kw_only=True):
    """By the cloud-init NoCloud volume."""


class QemuGuestAgentSSHPublicKeyAccessCredentialPropagation(Model, frozen=True, kw_only=True):
    """By the guest agent, also while the guest runs."""

    users: Annotated[tuple[str, ...], Schema(unique=True)]
    """The accounts that get the keys."""


class SSHPublicKeyAccessCredentialPropagationMethod(Model, frozen=True, kw_only=True):
    """How public keys reach the guest; exactly one way."""

    config_drive: ConfigDriveSSHPublicKeyAccessCredentialPropagation | None = None
    no_cloud: NoCloudSSHPublicKeyAccessCredentialPropagation | None = None
    qemu_guest_agent: QemuGuestAgentSSHPublicKeyAccessCredentialPropagation | None = None


class AccessCredentialSecretSource(Model, frozen=True, kw_only=True):
    """The secret that holds the credential."""

    secret_name: str


class SSHPublicKeyAccessCredentialSource(Model, frozen=True, kw_only=True):
    """Where the public keys are."""

    secret: AccessCredentialSecretSource | None = None


class SSHPublicKeyAccessCredential(Model, frozen=True, kw_only=True):
    """SSH public keys for accounts of the guest."""

    propagation_method: SSHPublicKeyAccessCredentialPropagationMethod
    source: SSHPublicKeyAccessCredentialSource


class QemuGuestAgentUserPasswordAccessCredentialPropagation(Model, frozen=True, kw_only=True):
    """By the guest agent."""


class UserPasswordAccessCredentialPropagationMethod(Model, frozen=True, kw_only=True):
    """How passwords reach the guest."""

    qemu_guest_agent: QemuGuestAgentUserPasswordAccessCredentialPropagation | None = None


class UserPasswordAccessCredentialSource(Model, frozen=True, kw_only=True):
    """Where the passwords are: user names are the secret's keys."""

    secret: AccessCredentialSecretSource | None = None


class UserPasswordAccessCredential(Model, frozen=True, kw_only=True):
    """Passwords for accounts of the guest."""

    propagation_method: UserPasswordAccessCredentialPropagationMethod
    source: UserPasswordAccessCredentialSource


class AccessCredential(Model, frozen=True, kw_only=True):
    """One credential: keys or passwords."""

    ssh_public_key: SSHPublicKeyAccessCredential | None = None
    user_password: UserPasswordAccessCredential | None = None

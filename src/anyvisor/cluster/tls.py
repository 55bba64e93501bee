"""TLS contexts that follow renewed certificates without a restart: connections that are open go on as they are."""

import os
import ssl

from anyvisor.cluster.certificates import Pair


def server() -> ssl.SSLContext:
    """A server's context; client certificates are asked for, and checked when given. It has no certificate yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["http/1.1"])
    return context


def client_of_agents() -> ssl.SSLContext:
    """The gateway's context towards agents, which are reached by address.

    Their certificate is of our own authority, which signs for nobody else, so no name has to be compared.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    return context


def load_pair(context: ssl.SSLContext, pair: Pair) -> None:
    """Use a certificate for new connections; the key goes through memory, as `ssl` reads files only."""
    descriptor = os.memfd_create("pair", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pair.certificate.rstrip() + b"\n" + pair.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def trust(context: ssl.SSLContext, authorities: bytes) -> None:
    """Trust more authorities; one that is trusted already may come again."""
    if authorities.strip():
        context.load_verify_locations(cadata=authorities.decode())

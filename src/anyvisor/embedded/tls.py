"""TLS of the API server, from the certificates that `pki` made: without what makes them, which is large."""

import ssl

from anyvisor.embedded.instance import Instance


def server_context(instance: Instance) -> ssl.SSLContext:
    """TLS for the API server: client certificates are asked for, and checked when given."""
    directory = instance.pki_dir
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(directory / "apiserver.crt", directory / "apiserver.key")
    context.load_verify_locations(directory / "ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["http/1.1"])
    return context

"""The agent's HTTP interface over mutual TLS, for a gateway on another machine."""

import ssl
from dataclasses import dataclass

from aiohttp import web


@dataclass(frozen=True, slots=True)
class RemoteListener:
    """Where to listen, and whose client certificates are answered.

    `context` must demand a client certificate; `names` are the common names that may ask.
    """

    address: str
    port: int
    context: ssl.SSLContext
    names: frozenset[str]

    @property
    def endpoint(self) -> str:
        """What the node's object says."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"https://{host}:{self.port}"

    def allows(self, request: web.Request) -> bool:
        """Whether the verified certificate of the caller is one that may ask."""
        transport = request.transport
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object") if transport is not None else None
        certificate = tls.getpeercert() if tls is not None else None
        return any(
            isinstance(pair, tuple) and pair[0] == "commonName" and pair[1] in self.names
            for entries in (certificate or {}).get("subject", ())
            for pair in entries
        )

    async def listen(self, app: web.Application) -> web.AppRunner:
        """Serve; the runner is the caller's to clean up."""
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, self.address, self.port, ssl_context=self.context).start()
        return runner

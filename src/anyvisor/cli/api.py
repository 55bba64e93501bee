"""Short calls from the command line to the instance's API server: the standard library alone, so they start at once."""

import json
import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

from anyvisor.cli.http import Connection
from anyvisor.cli.main import CommandError
from anyvisor.embedded.instance import Instance, InstanceError, default_data_dir, open_instance

_TIMEOUT_SECONDS = 30
KUBEVIRT = "/apis/kubevirt.io/v1"
SUBRESOURCES = "/apis/subresources.kubevirt.io/v1"


class ApiRefusalError(CommandError):
    """The server's answer, as its own sentence. `status` is the HTTP code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def instance() -> Instance:
    """The instance that the command is about.

    Raises:
        CommandError: there is none.
    """
    try:
        return open_instance(default_data_dir())
    except InstanceError as error:
        raise CommandError(str(error)) from error
    except PermissionError as error:
        raise CommandError(
            f"{error.filename} belongs to another user: run as that user, or name a --data-dir"
        ) from error


def client_context(of: Instance) -> ssl.SSLContext:
    """TLS with the admin's certificate."""
    context = ssl.create_default_context(cafile=str(of.pki_dir / "ca.crt"))
    context.load_cert_chain(of.pki_dir / "admin.crt", of.pki_dir / "admin.key")
    return context


class Api:
    """One kept connection to the API server."""

    def __init__(self, of: Instance) -> None:
        self.instance = of
        try:
            context = client_context(of)
        except PermissionError as error:
            raise CommandError(f"{of.pki_dir} belongs to another user: run as that user") from error
        except OSError as error:
            raise CommandError(f"{of.pki_dir} is not complete: run `anyvisor up`") from error
        self._connection = Connection("127.0.0.1", of.api_port, _TIMEOUT_SECONDS, context)

    def close(self) -> None:
        """End the connection; idempotent."""
        self._connection.close()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        query: dict[str, str] | None = None,
    ) -> Any:
        """One request; the decoded JSON answer, or None when there is none.

        Raises:
            ApiRefusalError: the server refused.
            CommandError: there is no server.
        """
        content = None if body is None else json.dumps(body)
        data = self._exchange(
            method, path, query, content, {"Accept": "application/json", "Content-Type": content_type}
        )
        return json.loads(data) if data.strip() else None

    def fetch(self, path: str, query: dict[str, str] | None = None) -> bytes:
        """What stands at a path, whatever its type; raises as `call` does."""
        return self._exchange("GET", path, query, None, {})

    def _exchange(
        self, method: str, path: str, query: dict[str, str] | None, content: str | None, headers: dict[str, str]
    ) -> bytes:
        target = f"{path}?{urlencode(query)}" if query else path
        try:
            response = self._connection.ask(method, target, content, headers)
            data = response.read()
        except OSError as error:
            raise CommandError(
                f"the instance in {self.instance.data_dir} does not answer ({error}): `anyvisor up --detach` starts it"
            ) from error
        if response.status >= 400:
            raise ApiRefusalError(response.status, _sentence(response.status, data))
        return data

    def follow(self, path: str, query: dict[str, str]) -> Iterator[bytes]:
        """Yield what stands at a path as it comes, for as long as it takes; raises as `call` does."""
        try:
            if "follow" in query:
                self._connection.wait_without_end()
            response = self._connection.ask("GET", f"{path}?{urlencode(query)}", None, {})
            if response.status >= 400:
                raise ApiRefusalError(response.status, _sentence(response.status, response.read()))
            while chunk := response.piece():
                yield chunk
        except OSError as error:
            raise CommandError(f"the instance in {self.instance.data_dir} went away ({error})") from error
        finally:
            self._connection.close()

    def first_event(self, path: str, query: dict[str, str]) -> None:
        """Watch until the first event, or until the server ends the watch."""
        try:
            self._connection.ask("GET", f"{path}?{urlencode(query)}", None, {"Accept": "application/json"}).piece()
        except OSError as error:
            raise CommandError(f"the instance in {self.instance.data_dir} does not answer ({error})") from error
        finally:
            self._connection.close()

    def vm(self, namespace: str, name: str, kind: str = "virtualmachines") -> str:
        """The path of a VM (or another namespaced kind of kubevirt.io)."""
        return f"{KUBEVIRT}/namespaces/{quote(namespace)}/{kind}/{quote(name)}"


def _sentence(status: int, data: bytes) -> str:
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return data.decode("utf-8", "replace").strip()[:500] or f"HTTP status {status}"


def connect() -> Api:
    """A connection to the API server of the instance that the command is about."""
    return Api(instance())


def split_name(text: str) -> str:
    """The name in `NAME`, `vm/NAME` or `vmi/NAME`."""
    kind, slash, name = text.rpartition("/")
    if slash and kind not in ("vm", "vms", "virtualmachine", "virtualmachines", "vmi", "virtualmachineinstance"):
        raise CommandError(f"{text!r} is no VM: use NAME or vm/NAME")
    if not name:
        raise CommandError("a VM's name is needed")
    return name

"""Who asks the aggregated API, and what authorization is asked about a request."""

from collections.abc import AsyncIterator, Mapping

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from anyvisor.cluster.access import Attributes, Authorizer, Caller, Proxy, attributes
from anyvisor.cluster.gateway import read_proxy
from anyvisor.kube.client import Client
from anyvisor.kube.transport import Request

GROUP = "subresources.kubevirt.io"
HEADERS: CIMultiDictProxy[str] = CIMultiDictProxy(
    CIMultiDict[str](
        [
            ("X-Remote-User", "nina"),
            ("X-Remote-Group", "a"),
            ("X-Remote-Group", "b"),
            ("X-Remote-Extra-Example.test%2fscope", "one"),
            ("X-Remote-Extra-Example.test%2fscope", "two"),
        ]
    )
)


class Answer:
    """The API server's word."""

    status = 201
    headers: Mapping[str, str] = {"content-type": "application/json"}

    async def read(self) -> bytes:
        return b'{"kind": "SubjectAccessReview", "status": {"allowed": true}}'

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield await self.read()

    async def close(self) -> None:
        return


class Transport:
    """Counts questions."""

    def __init__(self) -> None:
        self.asked = 0

    async def send(self, request: Request) -> Answer:
        assert request.path.endswith("/subjectaccessreviews")
        self.asked += 1
        return Answer()

    async def close(self) -> None:
        return


PROXY = Proxy(names=("front-proxy-client",))


def test_the_proxy_names_the_user_with_all_groups_and_extras() -> None:
    caller = PROXY.caller("front-proxy-client", HEADERS)
    assert caller == Caller("nina", ("a", "b"), {"example.test/scope": ("one", "two")})


@pytest.mark.parametrize("name", ["", "somebody-else"])
def test_nobody_else_names_a_user(name: str) -> None:
    assert PROXY.caller(name, HEADERS) is None


def test_the_terms_are_those_that_the_api_server_publishes() -> None:
    data = {
        "requestheader-client-ca-file": "PEM",
        "requestheader-allowed-names": '["front-proxy-client"]',
        "requestheader-username-headers": '["X-User"]',
        "requestheader-group-headers": "no JSON",
    }
    proxy = read_proxy(data)
    assert (proxy.authority, proxy.names, proxy.user_headers) == ("PEM", ("front-proxy-client",), ("X-User",))
    assert proxy.group_headers == ("X-Remote-Group",)


@pytest.mark.parametrize(
    ("method", "rest", "wanted"),
    [
        ("PUT", "namespaces/n/virtualmachines/a/start",
         Attributes("update", GROUP, "v1", "virtualmachines", "start", "n", "a")),
        ("GET", "namespaces/n/virtualmachineinstances/a/portforward/22/tcp",
         Attributes("get", GROUP, "v1", "virtualmachineinstances", "portforward", "n", "a")),
        ("GET", "namespaces/n/virtualmachineinstances/a/vnc/screenshot",
         Attributes("get", GROUP, "v1", "virtualmachineinstances", "vnc/screenshot", "n", "a")),
        ("PUT", "namespaces/n/expand-vm-spec", Attributes("update", GROUP, "v1", "expand-vm-spec", "", "n")),
        ("GET", "version", Attributes("get", GROUP, "v1", "version")),
    ],
)  # fmt: skip
def test_attributes_of_a_request(method: str, rest: str, wanted: Attributes) -> None:
    assert attributes(method, f"/apis/{GROUP}/v1/{rest}") == wanted


async def test_an_answer_is_remembered_for_a_moment() -> None:
    transport = Transport()
    authorizer = Authorizer(Client(transport))
    wanted = Attributes("get", GROUP, "v1", "version")
    assert await authorizer.refusal(Caller("nina"), wanted) == ""
    assert await authorizer.refusal(Caller("nina"), wanted) == ""
    assert transport.asked == 1
    assert await authorizer.refusal(Caller("otto"), wanted) == ""
    assert transport.asked == 2

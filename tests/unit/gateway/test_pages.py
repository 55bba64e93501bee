"""The web console's files and login, over real HTTP."""

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from anyvisor.gateway.pages import COOKIE, Pages

WEB = Path(__file__).parents[3] / "src" / "anyvisor" / "web"


@pytest.fixture
async def url() -> AsyncIterator[str]:
    pages = Pages(lambda token: token == "good")

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if request.path.startswith("/ui/"):
            return await pages.serve(request)
        return web.Response(text=pages.token(request) or "nobody")

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def answer(url: str, method: str = "GET", **options: Any) -> tuple[int, str, Mapping[str, str]]:
    async with aiohttp.ClientSession() as session, session.request(method, url, **options) as found:
        return found.status, await found.text(), found.headers


async def test_pages_run_no_script_but_ours(url: str) -> None:
    status, text, headers = await answer(f"{url}/ui/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|javascript:", text), "no script stands in the page"


@pytest.mark.parametrize("path", ["..%2fgateway%2fpages.py", "a//b", "%2e%2e/api/meta.py", ".hidden", "a%5c..%5cb"])
async def test_nothing_outside_is_served(url: str, path: str) -> None:
    from yarl import URL

    async with aiohttp.ClientSession() as session, session.get(URL(f"{url}/ui/{path}", encoded=True)) as found:
        assert found.status == 404


@pytest.mark.parametrize(
    ("origin", "token", "status"), [(True, "good", 200), (True, "bad", 401), (False, "good", 403), (None, "good", 403)]
)
async def test_login(url: str, origin: bool | None, token: str, status: int) -> None:
    headers = {"origin": url if origin else "https://evil.example"} if origin is not None else {}
    found, text, told = await answer(f"{url}/ui/login", "POST", json={"token": token}, headers=headers)
    assert found == status, text
    cookie = told.get("set-cookie", "")
    assert bool(cookie) == (status == 200)
    if cookie:
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"token": 5}', b"x" * 20_000])
async def test_a_login_without_a_token_is_told(url: str, body: bytes) -> None:
    status, text, _ = await answer(f"{url}/ui/login", "POST", data=body, headers={"origin": url})
    assert status in (400, 413)
    assert "token" in text


UPGRADE = {"connection": "Upgrade", "upgrade": "websocket"}


@pytest.mark.parametrize(
    ("method", "headers", "user"),
    [
        ("GET", {}, "good"),
        ("GET", {"sec-fetch-site": "same-origin"}, "good"),
        ("GET", {"sec-fetch-site": "cross-site"}, "nobody"),
        ("GET", {"origin": "https://evil.example"}, "nobody"),
        ("GET", UPGRADE, "nobody"),
        ("GET", {**UPGRADE, "origin": "https://evil.example"}, "nobody"),
        ("GET", {**UPGRADE, "origin": "SELF"}, "good"),
        ("PUT", {}, "nobody"),
        ("PUT", {"origin": "SELF"}, "good"),
        ("DELETE", {"origin": "null"}, "nobody"),
    ],
)
async def test_a_cookie_counts_for_our_own_page_alone(
    url: str, method: str, headers: dict[str, str], user: str
) -> None:
    sent = {name: url if value == "SELF" else value for name, value in headers.items()}
    _, text, _ = await answer(f"{url}/apis", method, headers={**sent, "cookie": f"{COOKIE}=good"})
    assert text == user


def test_the_page_names_only_files_that_exist() -> None:
    named = re.findall(r'(?:src|href)="([^"#]+)"', (WEB / "index.html").read_text())
    modules = [name for file in WEB.glob("*.js") for name in re.findall(r'from "\./([^"]+)"', file.read_text())]
    assert modules
    for name in {*named, *modules}:
        assert name.startswith("vendor/") or (WEB / name).is_file(), name


def test_the_locked_assets_name_no_registry() -> None:
    assert "resolved" not in (WEB / "package-lock.json").read_text()

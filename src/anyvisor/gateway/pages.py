"""The web console's files, and its login: a bearer token in a cookie that no script can read.

The files are public code; all data come from the API, with the rights of the token. A cookie is sent by a browser on
behalf of any page, so it counts only for requests that come from our own.
"""

import asyncio
import mimetypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

import msgspec
from aiohttp import web

PREFIX: Final = "/ui/"
COOKIE: Final = "anyvisor-token"
LIFE_SECONDS: Final = 12 * 3600
TOKEN_LIMIT: Final = 8192
BODY_LIMIT: Final = 16 * 1024
FILE_LIMIT: Final = 4 * 1024 * 1024
MISSING_ASSETS: Final = "the terminal and the viewer are not installed: `make web` fetches them (npm is needed)"
_SAFE: Final = frozenset({"GET", "HEAD"})
_HEADERS: Final[Mapping[str, str]] = {
    # Styles: the terminal writes its own into the page. Scripts come from files of ours alone.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
    "cross-origin-opener-policy": "same-origin",
}
_TYPES: Final = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".html": "text/html"}


@dataclass(frozen=True, slots=True)
class _Login:
    token: str


class Pages:
    """Serves the console. `knows` tells whether a token is one of a user's."""

    def __init__(self, knows: Callable[[str], bool], root: Traversable | None = None) -> None:
        self._knows = knows
        self._root = root or files("anyvisor.web")
        self._kept: dict[str, bytes] = {}

    def token(self, request: web.BaseRequest) -> str:
        """The token in the cookie of a request from our own page; empty for any other."""
        token = request.cookies.get(COOKIE, "")
        return token[:TOKEN_LIMIT] if token and from_own_page(request) else ""

    async def serve(self, request: web.BaseRequest) -> web.Response:
        """Answer a request below `/ui/`."""
        path = request.path.removeprefix(PREFIX)
        if request.method == "POST" and path in ("login", "logout"):
            return await self._login(request) if path == "login" else _logout()
        if request.method not in _SAFE:
            return _told(405, "this page is read only")
        body = await self._file(path or "index.html")
        if body is None:
            return _told(404, MISSING_ASSETS if path.startswith("vendor/") else "there is no such page")
        kind = _TYPES.get(path[path.rfind(".") :], "") or mimetypes.guess_type(path)[0] or "text/html"
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=_HEADERS)

    async def _file(self, path: str) -> bytes | None:
        kept = self._kept.get(path)
        if kept is None:
            kept = await asyncio.to_thread(self._read, path)
            if kept is not None and path.startswith("vendor/"):
                self._kept[path] = kept
        return kept

    def _read(self, path: str) -> bytes | None:
        parts = path.split("/")
        if any(part in ("", ".", "..") or part.startswith(".") or "\\" in part for part in parts):
            return None
        found = self._root
        for part in parts:
            found = found / part
        try:
            with found.open("rb") as file:
                return file.read(FILE_LIMIT)
        except OSError:
            return None

    async def _login(self, request: web.BaseRequest) -> web.Response:
        if not from_own_page(request):
            return _told(403, "the request does not come from this page")
        if (request.content_length or 0) > BODY_LIMIT:
            return _told(413, "the token is too long")
        try:
            wanted = msgspec.json.decode(await request.content.read(BODY_LIMIT), type=_Login)
        except msgspec.DecodeError:
            return _told(400, "a token is needed")
        token = wanted.token.strip()
        if not token or len(token) > TOKEN_LIMIT or not self._knows(token):
            return _told(401, "this token is not valid (any more): `anyvisor ui` makes a new one")
        answer = _told(200, "")
        answer.set_cookie(
            COOKIE, token, max_age=LIFE_SECONDS, path="/", secure=request.secure, httponly=True, samesite="Strict"
        )
        return answer


def from_own_page(request: web.BaseRequest) -> bool:
    """Whether a browser says that the request comes from a page of this server.

    Browsers name the origin in each request that can change something and in each websocket's handshake; a plain GET
    has none, and then names the site where it comes from.
    """
    origin = request.headers.get("origin")
    if origin is not None:
        return origin == f"{'https' if request.secure else 'http'}://{request.host}"
    asks_to_change = request.method not in _SAFE or "upgrade" in request.headers.get("connection", "").lower()
    return not asks_to_change and request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def _logout() -> web.Response:
    answer = _told(200, "")
    answer.del_cookie(COOKIE, path="/")
    return answer


def _told(status: int, message: str) -> web.Response:
    return web.json_response({"message": message}, status=status, headers=_HEADERS)

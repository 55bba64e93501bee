"""A headless Chromium, driven over its DevTools protocol."""

import asyncio
import base64
import itertools
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

PROGRAM = shutil.which("chromium")
START_SECONDS = 60
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--ignore-certificate-errors", "--remote-debugging-port=0", "--window-size=1280,900", "--disable-extensions"),
)


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._session = ""
        self.said: list[str] = []
        """Errors in the page's console."""

    async def open(self, url: str) -> None:
        target = (await self.send("Target.createTarget", url="about:blank"))["targetId"]
        self._session = (await self.send("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        await self.send("Runtime.enable")
        await self.send("Page.enable")
        await self.send("Page.navigate", url=url)

    async def send(self, method: str, **parameters: Any) -> Any:
        """A command's answer; what is told meanwhile is kept where it is an error."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        await self._socket.send_json(message | ({"sessionId": self._session} if self._session else {}))
        async with asyncio.timeout(60):
            while True:
                answer: dict[str, Any] = await self._socket.receive_json()
                if answer.get("id") == number:
                    if "error" in answer:
                        raise AssertionError(f"{method}: {answer['error']}")
                    return answer["result"]
                self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            details = event["params"]["exceptionDetails"]
            self.said.append(details.get("exception", {}).get("description", details["text"]))

    async def value(self, expression: str) -> Any:
        """What an expression is in the page; a promise is awaited."""
        result = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    async def until(self, expression: str, seconds: float = 60) -> Any:
        """Wait until an expression is true in the page; while it cannot be evaluated, it is not."""
        guarded = f"(() => {{ try {{ return {expression}; }} catch {{ return false; }} }})()"
        deadline = asyncio.get_running_loop().time() + seconds
        while not (found := await self.value(guarded)):
            if asyncio.get_running_loop().time() > deadline:
                shown = await self.value("document.body.innerText")
                raise AssertionError(f"not within {seconds:.0f} s: {expression}\n{shown}\n{self.said}")
            await asyncio.sleep(0.2)
        return found

    async def type(self, text: str) -> None:
        """Keys, as a person types them."""
        await self.send("Input.insertText", text=text)

    async def enter(self) -> None:
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        await self.send("Input.dispatchKeyEvent", type="keyDown", **key)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **key)

    async def picture(self, path: Path) -> None:
        """A screenshot."""
        picture = base64.b64decode((await self.send("Page.captureScreenshot", format="png"))["data"])
        await asyncio.to_thread(path.write_bytes, picture)


@asynccontextmanager
async def browsing(url: str) -> AsyncGenerator[Page]:
    """A page in a browser of its own."""
    if PROGRAM is None:
        pytest.skip("no browser: apt-get install chromium")
    with tempfile.TemporaryDirectory() as profile:
        process = await asyncio.create_subprocess_exec(
            PROGRAM, *OPTIONS, f"--user-data-dir={profile}", stderr=asyncio.subprocess.PIPE
        )
        try:
            address = await _address(process)
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(address, max_msg_size=1 << 26) as socket,
            ):
                page = Page(socket)
                await page.open(url)
                yield page
        finally:
            process.kill()
            await process.communicate()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    async with asyncio.timeout(START_SECONDS):
        while line := (await process.stderr.readline()).decode(errors="replace"):
            _, found, address = line.strip().partition("DevTools listening on ")
            if found:
                return address
    raise AssertionError("chromium ended before it listened")

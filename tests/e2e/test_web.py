"""The web console in a real browser: log in, start a VM, type on its console, look at its display."""

from importlib.resources import files
from pathlib import Path

import pytest

from tests.browser import PROGRAM, Page, browsing
from tests.e2e.conftest import Instance, tiny_vm

STATE = "document.getElementById('viewer').dataset.state"
PAINTED = """(() => {
  const canvas = document.querySelector('#screen canvas');
  if (!canvas || !canvas.width) return false;
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  return new Set(new Uint32Array(pixels.buffer)).size > 1;
})()"""

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="no browser: apt-get install chromium"),
    pytest.mark.skipif(
        not (files("anyvisor.web") / "vendor" / "xterm.mjs").is_file(), reason="no terminal and viewer: make web"
    ),
]


def button(name: str, action: str) -> str:
    return f"""document.querySelector('tr[data-name="default/{name}"] [data-action={action}]')"""


async def click(page: Page, name: str, action: str) -> None:
    await page.until(f"(() => {{ const b = {button(name, action)}; return b && !b.hidden && !b.disabled; }})()", 90)
    await page.value(f"{button(name, action)}.click()")


async def test_a_vm_is_started_typed_to_and_looked_at(shared: Instance, tmp_path: Path) -> None:
    shared.apply(tiny_vm("web", "Manual"))
    address = shared.cli("ui", "--print", "--minutes", "10").strip()
    async with browsing(address) as page:
        await page.until("document.getElementById('summary').textContent.startsWith('1 virtual machine, 0')")
        assert "token" not in await page.value("location.href"), "the token does not stay in the address"
        assert await page.value("document.cookie") == "", "no script can read the login"
        await click(page, "web", "start")
        await click(page, "web", "console")
        await page.until(f"{STATE} === 'Connected'", 60)
        await page.until("document.querySelector('.xterm-rows').innerText.includes('ANYVISOR t=')", 60)
        await page.type("from the browser")
        await page.enter()
        await page.until("document.querySelector('.xterm-rows').innerText.includes('from the browser')")
        # The server goes away and comes back: the console is there again by itself.
        shared.kill("control")
        await page.until(f"{STATE} !== 'Connected'", 60)
        await page.until(f"{STATE} === 'Connected'", 120)
        await page.type("and after a crash")
        await page.enter()
        await page.until("document.querySelector('.xterm-rows').innerText.includes('and after a crash')", 60)
        await click(page, "web", "display")
        await page.until(f"{STATE} === 'Connected'", 60)
        await page.until(PAINTED, 60)
        await page.picture(tmp_path / "display.png")
        await click(page, "web", "pause")
        await page.until(f"!{button('web', 'resume')}.hidden")
        await page.value("document.getElementById('logout').click()")
        await page.until("document.getElementById('login')?.hidden === false")
        assert page.said == []

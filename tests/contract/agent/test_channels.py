"""The agent touches no path and no socket that the specification does not list (docs/hri, "What the agent touches")."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from world import World

import anyvisor
from anyvisor.kube.resources import VMIS

PAGE = Path(__file__).parents[3] / "docs" / "hri" / "README.md"
PACKAGE = Path(anyvisor.__file__).parent
Json = dict[str, Any]


def listed() -> dict[str, str]:
    """The places of the page's table, as regular expressions by what the page calls them."""
    text = PAGE.read_text().partition("### What the agent touches")[2].partition("\n#")[0]
    rows = re.findall(r"^\| (`[^|]+`) \|", text, re.MULTILINE)
    return {place: pattern(place) for row in rows for place in re.findall(r"`([^`]+)`", row)}


def pattern(place: str) -> str:
    """A place of the page: words in capitals stand for one name, `...` for anything."""
    text = re.escape(place).replace(re.escape("..."), ".*")
    return re.sub(r"\b(NAME|PID|MACHINE|N|DEVICE)\b", "[^/]+", text)


def unlisted(lines: list[list[str]], world: World) -> list[list[str]]:
    """What was touched and is not on the page."""
    roots = {
        "STATE": world.root / "state",
        "RUN": world.root / "run",
        "DRIVER": world.root / "driver",
        "PACKAGE": PACKAGE,
    }
    known = [expression for expression in listed().values() if expression != "API"]
    for name, path in roots.items():
        known = [re.sub(rf"^{name}\b", re.escape(str(path)), expression) for expression in known]
    port = world.api.rpartition(":")[2]
    known.append(re.escape(f"('127.0.0.1', {port})"))
    return [line for line in lines if not any(re.fullmatch(expression, line[2]) for expression in known)]


def test_the_page_has_the_list():
    assert len(listed()) >= 12


@pytest.fixture
def audited(idle: World) -> World:
    """Everything runs, and the node's process writes down what it touches; a loop in Python, whose sockets show."""
    idle.audit, idle.loop = idle.root / "audit", "no"
    idle.configure()
    idle.start_zygote()
    idle.start_driver()
    idle.start_node()
    return idle


async def test_a_life_of_machines_touches_only_what_is_listed(audited: World):
    world = audited
    for name in ("one", "two"):
        await world.make(name)
        await world.phase(name, "Running")
    await world.type("one", b"hello")
    async with world.agent() as agent:
        vmi: Json = await world.get("one") or {}
        for verb in ("pause", "unpause"):
            async with agent.put(f"/v1/machines/{vmi['metadata']['uid']}/{verb}") as answer:
                await answer.read()
        for page in ("metrics", "v1/machines"):
            async with agent.get(f"/{page}") as answer:
                assert answer.status == 200
                await answer.read()
    world.kill("driver")
    world.start_driver()
    world.kill("node")
    world.start_node()
    await world.make("three")
    await world.phase("three", "Running")
    await world.client.patch(VMIS, "two", "default", {"metadata": {"finalizers": ["test/hold"]}})
    await world.client.delete(VMIS, "two", "default")
    await world.phase("two", "Succeeded")
    assert world.audit is not None
    lines: list[list[str]] = [json.loads(line) for line in world.audit.read_text().splitlines()]
    modules = {line[1] for line in lines}
    assert {"anyvisor.agent.records", "anyvisor.agent.endpoints", "anyvisor.agent.handover"} <= modules, modules
    found = unlisted(lines, world)
    assert found == [], "\n".join(sorted({str(line) for line in found}))


def test_a_place_that_is_not_listed_is_found(rundir: Path):
    class Where:
        root = rundir
        api = "http://127.0.0.1:1"

    strange = ["open", "anyvisor.agent.start", "/etc/shadow"]
    fine = ["open", "anyvisor.agent.records", str(rundir / "state" / "agent.lock")]
    assert unlisted([strange, fine], Where()) == [strange]  # type: ignore[arg-type]

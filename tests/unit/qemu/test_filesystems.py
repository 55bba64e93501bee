"""Shared directories: device, server, the way between them, and what is refused."""

import os
from dataclasses import replace

import pytest

from anyvisor.drivers.qemu import fileserver
from anyvisor.drivers.qemu.translate import translate
from anyvisor.drivers.qemu.translate.filesystems import INSTALL
from anyvisor.drivers.qemu.translate.host import FileServer
from anyvisor.hri.errors import Refused
from anyvisor.hri.v1.machine_pb2 import Helper
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from tests.unit.qemu.test_translate import HOST, device, machine, refused, values

SERVER = "/usr/lib/qemu/virtiofsd"
WITH_SERVER = replace(HOST, file_server=FileServer(SERVER))


def sharing(*tags: str, read_only: bool = False) -> Machine:
    made = machine()
    made.memory.shared = True
    for tag in tags:
        added = made.filesystems.add(id=f"fs.{tag}", tag=tag, read_only=read_only)
        added.directory_handle, added.namespace_handle = f"volume/{tag}", f"user/{tag}"
    return made


def test_each_directory_has_a_server_that_sees_nothing_else() -> None:
    result = translate(sharing("data", "conf"), WITH_SERVER)
    numbers = {slot.handle: slot.number for slot in result.launch.descriptors}
    places: list[str] = []
    for tag, pair, helper in zip(("data", "conf"), result.launch.pairs, result.launch.helpers, strict=True):
        name = f"filesystem-fs.{tag}"
        made = device(result, name)
        assert (made["driver"], made["tag"], made["chardev"]) == ("vhost-user-fs-pci", tag, name)
        places.append(made["addr"])
        assert pair.listening
        assert f"socket,id={name},fd={numbers[pair.first]}" in values(result, "chardev")
        own = {slot.handle: slot.number for slot in helper.descriptors}
        assert set(own) == {pair.second, f"volume/{tag}", f"user/{tag}"}
        assert f"--fd={own[pair.second]}" in helper.argv
        assert f"source=/proc/self/fd/{own[f'volume/{tag}']}/." in helper.argv
        assert any("sandbox=chroot" in word for word in helper.argv)
        assert helper.argv[:3] == ["/usr/bin/nsenter", f"--user=/proc/self/fd/{own[f'user/{tag}']}", "--"]
        assert helper.becomes == SERVER
        assert helper.on_exit == Helper.ON_EXIT_IGNORE
    assert places == ["0xf.0", "0xf.1"]
    assert device(result, "filesystem-fs.data")["multifunction"] is True
    assert "share" in values(result, "object")[0]


def test_the_server_that_stands_alone_has_words_of_its_own() -> None:
    host = replace(HOST, file_server=FileServer("/usr/libexec/virtiofsd", own=False))
    [helper] = translate(sharing("conf", read_only=True), host).launch.helpers
    words = " ".join(helper.argv)
    assert "/usr/libexec/virtiofsd --fd=3" in words
    assert "--shared-dir /proc/self/fd/4/. --sandbox chroot" in words
    assert "--readonly" in words


def test_what_cannot_be_is_refused() -> None:
    assert refused(sharing("t" * 37), WITH_SERVER) == {"filesystems[0].tag"}
    assert refused(sharing(*(f"t{i}" for i in range(9))), WITH_SERVER) == {"filesystems"}
    unshared = sharing("data")
    unshared.memory.shared = False
    assert refused(unshared, WITH_SERVER) == {"memory.shared"}
    with pytest.raises(Refused, match="apt-get install virtiofsd"):
        translate(sharing("data"), HOST)


async def test_the_server_of_this_node_is_found_or_missed_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    server, problem = await fileserver.find()
    assert (server is None) is bool(problem)
    monkeypatch.setattr(fileserver, "SERVERS", (FileServer("/nonexistent"),))
    server, problem = await fileserver.find()
    assert server is None
    assert problem.endswith(INSTALL)


async def test_a_node_without_user_namespaces_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fileserver, "SERVERS", (FileServer("/usr/bin/true"),))
    monkeypatch.setattr(fileserver, "IN_NAMESPACE", ("/usr/bin/false",))
    assert os.access("/usr/bin/true", os.X_OK)
    server, problem = await fileserver.find()
    assert server is None
    assert "user namespaces" in problem

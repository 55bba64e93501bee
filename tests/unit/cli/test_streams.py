"""What the stream commands make of their words."""

import argparse

import pytest

from anyvisor.cli import port_forward, ssh
from anyvisor.cli.main import CommandError
from anyvisor.cli.port_forward import Forward


@pytest.mark.parametrize(
    ("text", "forward"),
    [
        ("8022:22", Forward("tcp", 8022, 22)),
        ("22", Forward("tcp", 22, 22)),
        (":22", Forward("tcp", 0, 22)),
        ("0:22", Forward("tcp", 0, 22)),
        ("udp/53", Forward("udp", 53, 53)),
        ("tcp/8080:80", Forward("tcp", 8080, 80)),
    ],
)
def test_ports(text: str, forward: Forward) -> None:
    assert port_forward.parse(text) == forward
    path = forward.path("ns", "web")
    assert path.endswith(f"/namespaces/ns/virtualmachineinstances/web/portforward/{forward.remote}/{forward.protocol}")


@pytest.mark.parametrize("text", ["", ":", "22:", "0", "x", "sctp/1", "65536", "1:65536", "1:2:3", "-1", "1:0"])
def test_what_is_no_port_is_told(text: str) -> None:
    with pytest.raises(CommandError, match=r"is no port: (use|ports go)"):
        port_forward.parse(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("web", ("", "web")),
        ("root@web", ("root", "web")),
        ("vm/web", ("", "web")),
        ("me@vmi/web-1", ("me", "web-1")),
    ],
)
def test_ssh_targets(text: str, found: tuple[str, str]) -> None:
    assert ssh.target(text) == found


@pytest.mark.parametrize("text", ["", "@web", "a b", "-oProxyCommand=x", "root@", "we$b", "a@b@c"])
def test_what_is_no_vm_never_reaches_ssh(text: str) -> None:
    with pytest.raises(CommandError, match="is no VM"):
        ssh.target(text)


def test_the_proxy_command_survives_the_shell_and_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYVISOR_DATA_DIR", "/tmp/a b%h")
    command = ssh.proxy_command("default", "web", 22)
    assert "'/tmp/a b%%h'" in command
    assert command.endswith("port-forward --stdio -n default vmi/web 22")


@pytest.mark.parametrize("command", ["ssh", "scp", "port-forward", "logs"])
def test_help_has_examples(command: str) -> None:
    module = {"ssh": ssh, "scp": ssh, "port-forward": port_forward}.get(command)
    if module is None:
        from anyvisor.cli import logs as module
    parser = argparse.ArgumentParser(prog=f"anyvisor {command}")
    module.configure(parser)
    assert f"anyvisor {command}" in parser.format_help().partition("examples:")[2]

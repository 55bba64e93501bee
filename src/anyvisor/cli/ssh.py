"""`anyvisor ssh [USER@]VM`, `anyvisor scp`: the system's ssh, which reaches the guest through the instance."""

import argparse
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

from anyvisor.cli.api import connect
from anyvisor.cli.main import CommandError
from anyvisor.cli.naming import running

SSH_EXAMPLES: Final = """examples:
  anyvisor ssh debian@web
  anyvisor ssh -i ~/.ssh/id_ed25519 debian@web --command 'uname -a'
  anyvisor ssh debian@web -t -L 8080:localhost:80     (what is not known here goes to ssh)"""
SCP_EXAMPLES: Final = """examples:
  anyvisor scp notes.txt debian@web:/tmp/
  anyvisor scp -r debian@web:/var/log ./log"""
_TARGET: Final = re.compile(r"(?:([^@:/\s]+)@)?(?:(?:vmi?|virtualmachine(?:instance)?)/)?([a-z0-9][a-z0-9.-]*)")


def configure(parser: argparse.ArgumentParser) -> None:
    """The options that both programs have; the rest goes to ssh or scp as it is."""
    copying = parser.prog.endswith("scp")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = SCP_EXAMPLES if copying else SSH_EXAMPLES
    parser.add_argument("-n", "--namespace", default="default", help="the VM's namespace (default: default)")
    parser.add_argument("-i", "--identity-file", metavar="FILE", help="private key to log in with")
    parser.add_argument("-p", "--port", type=int, default=22, help="port of the guest's ssh server (default: 22)")
    if copying:
        parser.add_argument("-r", "--recursive", action="store_true", help="copy directories")
        parser.add_argument("source", help="FILE, or [USER@]VM:FILE")
        parser.add_argument("target", help="FILE, or [USER@]VM:FILE")
        return
    parser.add_argument("-l", "--username", metavar="USER", help="user in the guest (or USER@VM)")
    parser.add_argument("-c", "--command", dest="remote", metavar="COMMAND", help="run a command instead of a shell")
    parser.add_argument("vm", metavar="[USER@]VM", help="name of the VM")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="further options of ssh")


def run(arguments: argparse.Namespace) -> int:
    """Become ssh or scp; does not return."""
    words = _scp(arguments) if arguments.command == "scp" else _ssh(arguments)
    program = shutil.which(words[0])
    if program is None:
        raise CommandError(f"{words[0]} is not installed (Debian: apt-get install openssh-client)")
    os.execv(program, words)


def _ssh(arguments: argparse.Namespace) -> list[str]:
    user, name = target(arguments.vm)
    user = user or arguments.username
    login = ["-l", user] if user else []
    remote = [arguments.remote] if arguments.remote is not None else []
    options = _options(arguments, name)
    return ["ssh", *options, *login, *arguments.options, f"{name}.{arguments.namespace}", *remote]


def _scp(arguments: argparse.Namespace) -> list[str]:
    places: list[str] = []
    names: set[str] = set()
    for place in (arguments.source, arguments.target):
        machine, colon, file = place.partition(":")
        if not colon or "/" in machine.removeprefix("vm/").removeprefix("vmi/"):
            places.append(place)
            continue
        user, name = target(machine)
        names.add(name)
        places.append(f"{user}@{name}.{arguments.namespace}:{file}" if user else f"{name}.{arguments.namespace}:{file}")
    if len(names) != 1:
        raise CommandError("name one VM: `anyvisor scp FILE [USER@]VM:FILE`, or the other way")
    recursive = ["-r"] if arguments.recursive else []
    return ["scp", *_options(arguments, names.pop()), *recursive, "--", *places]


def target(text: str) -> tuple[str, str]:
    """User (or an empty string) and name in `[USER@][vm/]NAME`; raises CommandError."""
    found = _TARGET.fullmatch(text)
    if found is None:
        raise CommandError(f"{text!r} is no VM: use NAME or USER@NAME")
    return found[1] or "", found[2]


def _options(arguments: argparse.Namespace, name: str) -> list[str]:
    """How ssh reaches the guest, and under which name it remembers its key: another VM of that name is another host."""
    api = connect()
    vmi = running(api, arguments.namespace, name)
    owner = next(iter(vmi["metadata"].get("ownerReferences") or []), vmi["metadata"])
    proxy = proxy_command(arguments.namespace, name, arguments.port)
    options = ["-o", f"ProxyCommand={proxy}", "-o", f"HostKeyAlias=anyvisor-{name}-{owner['uid'][:8]}"]
    options += ["-o", f"UserKnownHostsFile={Path.home() / '.ssh' / 'anyvisor_known_hosts'}"]
    options += ["-o", "StrictHostKeyChecking=accept-new"]
    if arguments.identity_file:
        options += ["-i", arguments.identity_file, "-o", "IdentitiesOnly=yes"]
    return options


def proxy_command(namespace: str, name: str, port: int) -> str:
    """The command with which ssh gets a connection; ssh gives it to a shell and replaces what begins with %."""
    own = [sys.executable, "-m", "anyvisor"]
    if data_dir := os.environ.get("ANYVISOR_DATA_DIR"):
        own += ["--data-dir", data_dir]
    words = [*own, "port-forward", "--stdio", "-n", namespace, f"vmi/{name}", str(port)]
    return shlex.join(words).replace("%", "%%")

"""`make demo`: the whole way of one VM, through public interfaces only, step by step on the terminal."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from guests import build

ROOT = Path(__file__).parent.parent
DATA = ROOT / ".cache" / "demo"
ANYVISOR = [str(ROOT / ".venv" / "bin" / "anyvisor"), "--data-dir", str(DATA)]
COUNTER = re.compile(r"ANYVISOR t=(\d+)")


class DemoError(Exception):
    """A step did not do what it should."""


def step(text: str) -> None:
    """Announce a step."""
    print(f"\n\033[1m==> {text}\033[0m" if sys.stdout.isatty() else f"\n==> {text}", flush=True)


def run(*words: str, show: bool = True, check: bool = True, seconds: float = 180) -> str:
    """Run an `anyvisor` command as a user would, and show it."""
    if show:
        print(f"$ anyvisor {' '.join(words)}", flush=True)
    done = subprocess.run([*ANYVISOR, *words], capture_output=True, text=True, timeout=seconds, check=False)
    text = done.stdout + done.stderr
    if show and text.strip():
        print(text.rstrip(), flush=True)
    if check and done.returncode:
        raise DemoError(f"`anyvisor {' '.join(words)}` ended with {done.returncode}:\n{text}")
    return done.stdout


def console(seconds: float) -> str:
    """What the console shows within a few seconds, replay first."""
    return run("console", "demo", "--seconds", str(seconds), show=False, check=False)


def counters(text: str) -> list[int]:
    """The guest's counter values in a console text."""
    return [int(number) for number in COUNTER.findall(text)]


def wait_for_counter(seconds: float) -> str:
    """The console's text once the guest counts."""
    deadline = time.monotonic() + seconds
    while True:
        text = console(3)
        if len(counters(text)) >= 2:
            return text
        if time.monotonic() > deadline:
            raise DemoError(f"the guest did not count within {seconds:.0f} s; its console says:\n{text}")


def status() -> dict[str, Any]:
    """`anyvisor status` as data."""
    return json.loads(run("status", "-o", "json", show=False, check=False))


def start() -> None:
    """Control plane, image, VM."""
    step("Which hypervisors work here?")
    run("doctor", check=False)
    step("Start the control plane: API server, controllers, one node with its agent and drivers")
    run("up", "--detach")
    step("Import a guest: Debian's cloud kernel and a busybox initramfs, as an OCI archive")
    run("image", "import", str(build.linux_archive()), "--name", "demo/linux")
    step("Apply a plain KubeVirt manifest with the real kubectl")
    run("kubectl", "apply", "-f", str(ROOT / "examples" / "demo.yaml"))
    run("kubectl", "wait", "vm/demo", "--for=condition=Ready", "--timeout=120s")
    run("kubectl", "get", "vm,vmi,pod", "-o", "wide")


def survive() -> None:
    """Console, kill -9 of everything of ours, adoption."""
    step("Attach to the console (the guest prints a counter each second)")
    before = wait_for_counter(120)
    print(before.strip()[-800:])
    uid = run("kubectl", "get", "vmi", "demo", "-o", "jsonpath={.metadata.uid}", show=False)
    pids = {row["name"]: row["pid"] for row in status()["processes"]}
    step(f"kill -9 everything of ours: {', '.join(f'{name} ({pid})' for name, pid in pids.items())}")
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    killed, last = time.monotonic(), counters(before)[-1]
    time.sleep(5)
    step("Start the control plane again: it finds the guest, which went on counting")
    run("up", "--detach")
    after = wait_for_counter(60)
    first, newest = counters(after)[0], counters(after)[-1]
    print(after.strip()[-400:])
    gone = time.monotonic() - killed
    print(f"\ncounter before: {last}; now: {newest}, {gone:.0f} s later; the console's replay begins at {first}")
    if not last < newest <= last + gone * 1.5 + 5:
        raise DemoError("the guest did not count on: it was harmed, or started anew")
    if run("kubectl", "get", "vmi", "demo", "-o", "jsonpath={.metadata.uid}", show=False) != uid:
        raise DemoError("the VMI is another one")


def finish() -> None:
    """Clean stop, and nothing left."""
    step("Shut it down by the power button")
    run("stop", "demo", "--wait")
    run("kubectl", "get", "vm", "demo")
    run("kubectl", "get", "events", "--field-selector", "involvedObject.name=demo")
    run("kubectl", "delete", "vm", "demo")
    step("Stop the control plane, and look for leftovers")
    instance = json.loads((DATA / "instance.json").read_text())["id"]
    run("down", "--stop-vms")
    left = leftovers(instance)
    if left:
        raise DemoError("left behind: " + "; ".join(left))
    shutil.rmtree(DATA)
    print("nothing is left: no process, network namespace, interface, mount, control group, socket or file")


def leftovers(instance: str) -> list[str]:
    """What of the instance still exists on this machine outside its data directory."""
    found: list[str] = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if str(DATA) in command and int(directory.name) != os.getpid():
            found.append(f"process {directory.name}: {command[:80]}")
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    found += [f"mount {mount}" for mount in mounts if instance in mount or str(DATA) in mount]
    found += [f"{path}" for path in Path("/run/anyvisor").glob(f"{instance}*")]
    found += [f"network namespace {path.name}" for path in Path("/run/netns").glob(f"*{instance}*")]
    found += [f"interface {path.name}" for path in Path("/sys/class/net").glob(f"*{instance}*")]
    found += [f"control group {path}" for path in Path("/sys/fs/cgroup").glob(f"**/anyvisor/{instance}*")]
    return found


def main() -> int:
    """Run the demo; on failure say what failed, and leave the instance for a look."""
    if DATA.exists():
        step("Remove what an earlier, interrupted demo left")
        run("down", "--stop-vms", check=False)
        shutil.rmtree(DATA, ignore_errors=True)
    begin = time.monotonic()
    try:
        start()
        survive()
        finish()
    except (DemoError, subprocess.TimeoutExpired, build.CannotBuildError) as error:
        print(f"\ndemo: {error}\nThe instance is left in {DATA}: logs in {DATA}/logs", file=sys.stderr)
        return 1
    print(f"\ndemo: done in {time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

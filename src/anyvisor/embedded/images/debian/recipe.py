"""What goes into a Debian disk: pure. The same recipe gives the same disk, up to the packages' own versions."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Final

_EDITION: Final = 1
"""Raised with each change of what a build does, so that older disks are not taken for its result."""
_PACKAGE: Final = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_SUITE: Final = re.compile(r"[a-z][a-z0-9-]+")
MIN_BYTES: Final = 1024**3
BASE: Final = (
    *("linux-image-cloud-amd64", "initramfs-tools", "zstd", "systemd-sysv", "udev", "dbus", "systemd-resolved"),
    *("cloud-init", "cloud-guest-utils", "e2fsprogs", "openssh-server", "sudo", "qemu-guest-agent"),
    *("iproute2", "iputils-ping", "ca-certificates", "less", "nano", "grub-pc-bin", "grub-common"),
)
LABEL: Final = "root"
COMMAND_LINE: Final = f"root=LABEL={LABEL} ro console=tty0 console=ttyS0,115200"

FILES: Final = {
    "etc/fstab": f"LABEL={LABEL} / ext4 defaults,errors=remount-ro 0 1\n",
    "etc/hostname": "debian\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n",
    # Empty: each guest gets its own at its first boot.
    "etc/machine-id": "",
    # Looked for in this order; without that, cloud-init asks every cloud that there is.
    "etc/cloud/cloud.cfg.d/90-anyvisor.cfg": (
        "datasource_list: [NoCloud, ConfigDrive, None]\n"
        "system_info:\n  network:\n    renderers: [networkd]\n"
        "ssh_genkeytypes: [ed25519]\n"
    ),
    # For guests without cloud-init's own configuration of the network, whose file sorts before this one.
    "etc/systemd/network/90-dhcp.network": (
        "[Match]\nType=ether\n\n[Link]\nRequiredFamilyForOnline=ipv4\n\n[Network]\nDHCP=yes\n"
    ),
    # Keys of its own for a guest that cloud-init does not configure.
    "etc/systemd/system/ssh-host-keys.service": (
        "[Unit]\nDescription=SSH host keys\nBefore=ssh.service\nAfter=cloud-init.service\n"
        "ConditionPathExists=!/etc/ssh/ssh_host_ed25519_key\n\n"
        "[Service]\nType=oneshot\n"
        "ExecStart=/usr/bin/ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    ),
    "boot/grub/grub.cfg": (
        "serial --unit=0 --speed=115200\nterminal_output serial console\n"
        f"linux /vmlinuz {COMMAND_LINE}\ninitrd /initrd.img\nboot\n"
    ),
}
EARLY_GRUB: Final = f"search.fs_label {LABEL} root\nset prefix=($root)/boot/grub\n"
GRUB_MODULES: Final = "biosdisk part_msdos ext2 search_label normal linux configfile serial terminal"
LEFT_OUT: Final = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*")
ENABLED: Final = "systemd-networkd systemd-networkd-wait-online ssh-host-keys"
DISABLED: Final = "apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service"


class RecipeError(Exception):
    """A disk like this cannot be built; the message says why."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The inputs of a build."""

    packages: tuple[str, ...] = ()
    """Besides the base."""
    suite: str = "bookworm"
    mirror: str = ""
    """Empty: Debian's own."""
    size_bytes: int = 2 * 1024**3

    def check(self) -> None:
        """Raise RecipeError for what mmdebstrap could misunderstand or the disk cannot hold."""
        for name in self.packages:
            if not _PACKAGE.fullmatch(name):
                raise RecipeError(f"{name!r} is no name of a Debian package")
        if not _SUITE.fullmatch(self.suite):
            raise RecipeError(f"{self.suite!r} is no name of a Debian release, like bookworm")
        if self.mirror and not re.fullmatch(r"https?://[^\s'\"]+", self.mirror):
            raise RecipeError(
                f"{self.mirror!r} is no address of a mirror: it begins with http:// or https:// and has no spaces"
            )
        if self.size_bytes < MIN_BYTES or self.size_bytes % 1024**2:
            raise RecipeError("the disk must have at least 1Gi, in whole mebibytes")

    @property
    def key(self) -> str:
        """Names the result: the hash of all inputs, the build's own included."""
        parts = [_EDITION, asdict(self), BASE, FILES, EARLY_GRUB, GRUB_MODULES, LEFT_OUT, ENABLED, DISABLED]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def command(recipe: Recipe, root: str, hook: str) -> list[str]:
    """The call of mmdebstrap that fills the directory `root`; the script `hook` runs in the end, inside of it."""
    words = ["mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory"]
    words.append("--include=" + ",".join((*BASE, *recipe.packages)))
    words += [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    words += ["--dpkgopt=force-unsafe-io", '--aptopt=Acquire::Retries "3"', f"--customize-hook={hook}"]
    words += [recipe.suite, root]
    return [*words, recipe.mirror] if recipe.mirror else words


def finish_script() -> str:
    """What is still done by programs of the guest itself."""
    modules = f"-p /boot/grub -c /boot/grub/early.cfg {GRUB_MODULES}"
    return (
        f"systemctl enable {ENABLED} && systemctl disable {DISABLED} && "
        f"grub-mkimage -O i386-pc -o /boot/grub/core.img {modules} && "
        "cp /usr/lib/grub/i386-pc/boot.img /boot/grub/ && rm -f /etc/ssh/ssh_host_*"
    )


def partition_table(disk_bytes: int, start_sector: int) -> bytes:
    """The end of the first sector: one bootable Linux partition from `start_sector` to the disk's end."""
    sectors = min(disk_bytes // 512 - start_sector, 0xFFFF_FFFF)
    entry = bytes((0x80, 0xFE, 0xFF, 0xFF, 0x83, 0xFE, 0xFF, 0xFF))
    return entry + start_sector.to_bytes(4, "little") + sectors.to_bytes(4, "little") + bytes(48) + b"\x55\xaa"

"""What the guest's agent tells, in the words of the served API: pure; all lists and texts are bounded."""

from typing import Any, Final, cast

from anyvisor.api.meta import Json

API_VERSION: Final = "subresources.kubevirt.io/v1"
ITEMS: Final = 512
"""Entries of a list that are passed on."""
TEXT: Final = 256
_OS_FIELDS: Final = {
    "name": "name",
    "kernelRelease": "kernel-release",
    "version": "version",
    "prettyName": "pretty-name",
    "versionId": "version-id",
    "kernelVersion": "kernel-version",
    "machine": "machine",
    "id": "id",
}


def _objects(value: Any) -> list[Json]:
    items = cast("list[Any]", value)[:ITEMS] if isinstance(value, list) else []
    return [cast("Json", item) for item in items if isinstance(item, dict)]


def _object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value[:TEXT] if isinstance(value, str) else ""


def _bytes(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else 0


def operating_system(osinfo: Any) -> Json:
    """`guestOSInfo` of guest-get-osinfo."""
    given = _object(osinfo)
    fields = {name: _text(given.get(key)) for name, key in _OS_FIELDS.items()}
    return {name: value for name, value in fields.items() if value}


def users(found: Any) -> list[Json]:
    """Who is logged in, of guest-get-users."""
    return [
        {
            "userName": _text(user.get("user")),
            **({"domain": domain} if (domain := _text(user.get("domain"))) else {}),
            "loginTime": at if isinstance(at := user.get("login-time"), int | float) else 0,
        }
        for user in _objects(found)
    ]


def file_systems(found: Any) -> list[Json]:
    """What is mounted, of guest-get-fsinfo."""
    return [
        {
            "diskName": _text(mounted.get("name")),
            "mountPoint": _text(mounted.get("mountpoint")),
            "fileSystemType": _text(mounted.get("type")),
            "usedBytes": _bytes(mounted.get("used-bytes")),
            "totalBytes": _bytes(mounted.get("total-bytes")),
            "disk": [
                {"busType": _text(disk.get("bus-type")), "serial": _text(disk.get("serial"))}
                for disk in _objects(mounted.get("disk"))
            ],
        }
        for mounted in _objects(found)
    ]


def commands(info: Any) -> list[Json]:
    """What the agent can do, of guest-info."""
    return [
        {
            "name": _text(command.get("name")),
            "enabled": command.get("enabled") is True,
            "successResponse": command.get("success-response") is True,
        }
        for command in _objects(_object(info).get("supported_commands"))
    ]


def information(answers: dict[str, Any]) -> Json:
    """`VirtualMachineInstanceGuestAgentInfo`, of the answers by command; what was not answered is left out."""
    timezone = _object(answers.get("guest-get-timezone"))
    frozen = _text(answers.get("guest-fsfreeze-status"))
    result: Json = {
        "kind": "VirtualMachineInstanceGuestAgentInfo",
        "apiVersion": API_VERSION,
        "guestAgentVersion": _text(_object(answers.get("guest-info")).get("version")),
        "supportedCommands": commands(answers.get("guest-info")),
        "hostname": _text(_object(answers.get("guest-get-host-name")).get("host-name")),
        "os": operating_system(answers.get("guest-get-osinfo")),
        "timezone": _timezone(timezone),
        "userList": users(answers.get("guest-get-users")),
        "fsInfo": {"disks": file_systems(answers.get("guest-get-fsinfo"))},
        "fsFreezeStatus": frozen,
    }
    return {key: value for key, value in result.items() if value}


def _timezone(found: Json) -> str:
    """As clients know it: name and offset in seconds."""
    zone, offset = _text(found.get("zone")), found.get("offset")
    return f"{zone}, {offset}" if zone and isinstance(offset, int) else zone


def interfaces(found: Any) -> dict[str, Json]:
    """By MAC address: name and addresses of guest-network-get-interfaces; loopback and link-local ones left out."""
    result: dict[str, Json] = {}
    for interface in _objects(found):
        mac = _text(interface.get("hardware-address")).lower()
        if not mac or mac == "00:00:00:00:00:00":
            continue
        given = [_text(each.get("ip-address")) for each in _objects(interface.get("ip-addresses"))]
        addresses = [each for each in given if each and not each.lower().startswith("fe80:")]
        result[mac] = {"interfaceName": _text(interface.get("name")), "ipAddresses": addresses}
    return result


def with_guest(status: list[Json], known: dict[str, Json]) -> list[Json]:
    """`status.interfaces` with what the guest says. An address that the network gave is the one by which others
    reach the guest, which does not know it where it is translated: that stays.
    """
    return [_merged(entry, known.get(str(entry.get("mac", "")).lower())) for entry in status]


def _merged(entry: Json, known: Json | None) -> Json:
    source = str(entry.get("infoSource") or "domain")
    if known is None:
        return entry
    result = {**entry, "infoSource": f"{source}, guest-agent"}
    if known["interfaceName"]:
        result["interfaceName"] = known["interfaceName"]
    if known["ipAddresses"] and not entry.get("ipAddress"):
        result |= {"ipAddress": known["ipAddresses"][0], "ipAddresses": known["ipAddresses"]}
    return result

"""Who needs which images: one small file a user, so that uses outlive the processes that hold them."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class Use:
    """Blobs by the image's name, of one user; the uses of one group end together, `title` is what people call it."""

    group: str
    title: str
    images: dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Uses:
    """The files in one directory."""

    directory: Path

    def write(self, user: str, use: Use) -> None:
        """Set what a user needs; raises ValueError where the name cannot be a file's."""
        if not _USER.fullmatch(user):
            raise ValueError(f"{user!r} cannot name a user of images")
        content = json.dumps({"group": use.group, "title": use.title, "images": use.images}).encode()
        # No sync: the machines that use images end with the host, too.
        fresh = self.directory / f".{user}.new"
        fresh.write_bytes(content)
        fresh.replace(self.directory / f"{user}.json")

    def remove(self, user: str) -> None:
        """The user needs nothing any more."""
        (self.directory / f"{user}.json").unlink(missing_ok=True)

    def all(self) -> dict[str, Use]:
        """All uses by their users."""
        found: dict[str, Use] = {}
        for path in self.directory.glob("*.json"):
            try:
                document = json.loads(path.read_bytes())
                images = {str(name): [str(blob) for blob in blobs] for name, blobs in document["images"].items()}
                found[path.stem] = Use(str(document["group"]), str(document["title"]), images)
            except FileNotFoundError:
                continue
            except (ValueError, KeyError, TypeError, AttributeError):
                found[path.stem] = Use("", path.stem, {})
        return found

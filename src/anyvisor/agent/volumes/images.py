"""Which container images a VMI needs."""

from anyvisor.api.meta import Json, list_at, text_at


def references(vmi: Json) -> list[str]:
    """The images of its disks and of the kernel that it boots, each once."""
    named = [text_at(volume, "containerDisk", "image") for volume in list_at(vmi, "spec", "volumes")]
    named.append(text_at(vmi, "spec", "domain", "firmware", "kernelBoot", "container", "image"))
    return [name for name in dict.fromkeys(named) if name]

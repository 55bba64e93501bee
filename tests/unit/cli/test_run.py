"""The manifest of `anyvisor run`."""

import argparse
from typing import Any

import pytest

from anyvisor.cli import run
from anyvisor.cli.main import CommandError
from anyvisor.embedded.images.store import Image, StoredFile

MIB = 1 << 20
IMAGE = Image("demo:latest", "sha256:0", 0, (StoredFile("/disk/a.raw", "0" * 64, 10, "raw", 2 * MIB),))


def rendered(*words: str, size: str = "") -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    run.configure(parser)
    return run.render(parser.parse_args(["quay.io/team/demo:1", *words]), None, size)


def test_a_disk_of_an_image_ends_with_the_run() -> None:
    spec = rendered()["spec"]
    assert "dataVolumeTemplates" not in spec
    assert spec["template"]["spec"]["volumes"] == [{"name": "root", "containerDisk": {"image": "quay.io/team/demo:1"}}]


def test_a_lasting_disk_is_filled_from_the_image() -> None:
    made = rendered("--name", "web", size="3Mi")
    [template] = made["spec"]["dataVolumeTemplates"]
    assert template["metadata"]["name"] == "web-disk"
    assert template["spec"] == {
        "source": {"registry": {"url": "docker://quay.io/team/demo:1"}},
        "storage": {"resources": {"requests": {"storage": "3Mi"}}},
    }
    assert made["spec"]["template"]["spec"]["volumes"] == [{"name": "root", "dataVolume": {"name": "web-disk"}}]


@pytest.mark.parametrize(("asked", "size"), [(None, str(2 * MIB)), ("2Mi", "2Mi"), ("1G", "1G")])
def test_a_lasting_disk_is_at_least_as_large_as_the_image(asked: str | None, size: str) -> None:
    assert run.disk_size(IMAGE, asked) == size


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [("1Mi", "--disk-size 1Mi is less than the image's disk has: give 2Mi or more"), ("big", "is no size, like 10Gi")],
)
def test_a_size_that_cannot_be_is_told(asked: str, sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        run.disk_size(IMAGE, asked)

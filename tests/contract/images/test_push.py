"""The components' images reach a registry with the digest that they were built with."""

import shutil
from pathlib import Path

import pytest

from anyvisor.cli import main as cli
from anyvisor.embedded.images.push import PushError, push, read_archive
from tests.registry import serving
from tools.images import oci

pytestmark = pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")


def archive(place: Path) -> Path:
    target = place / "launcher-test.tar"
    config = oci.Config(labels={"io.anyvisor.hri.minor": "1"}, stop_signal="SIGURG")
    oci.write(target, "example.org/anyvisor/launcher-test:1.2", [oci.files_layer({"/a": b"1" * 100_000})], config)
    return target


def test_an_image_is_served_as_it_was_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = read_archive(archive(tmp_path))
    with serving() as registry:
        words = ["image", "push", str(made.path), "--registry", f"{registry.host}/mine", "--plain-http"]
        assert cli.main(words) == 0
        assert capsys.readouterr().out == f"{registry.host}/mine/launcher-test:1.2@{made.digest}\n"
        assert f"mine/launcher-test@{made.digest}" in registry.manifests
        assert "mine/launcher-test:1.2" in registry.manifests


def test_a_registry_that_refuses_is_named_with_its_reason(tmp_path: Path) -> None:
    with serving() as registry:
        registry.login = "somebody:secret"
        with pytest.raises(PushError, match=f"{registry.host}/mine/launcher-test:1.2: .*"):
            push(read_archive(archive(tmp_path)), f"{registry.host}/mine", plain_http=True)


@pytest.mark.parametrize("content", [None, b"nothing of the kind"])
def test_what_is_no_archive_is_said_so(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x.tar"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PushError, match="make images"):
        read_archive(path)

"""`anyvisor validate`: what is read, what is told, and where."""

import argparse
import io
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyvisor.cli import validate
from anyvisor.cli.main import CommandError
from anyvisor.cli.manifests import ManifestError, read

GOOD = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: good}
spec:
  domain:
    devices: {disks: [{name: root, disk: {bus: virtio}}]}
    memory: {guest: 64Mi}
  volumes:
  - name: root
    containerDisk: {image: "a:1"}
"""
BAD = """\
# A comment, so that lines count.
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: bad
spec:
  runStrategy: Never
  template:
    spec:
      domain:
        devices:
          disks:
          - name: root
            disk:
              bus: floppy
        memory: {guest: 64Mi}
      volumes:
      - name: root
        containerDisk: {image: "a:1"}
"""


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    validate.configure(parser)
    return validate.run(parser.parse_args(words))


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "m.yaml"
    path.write_text(f"{GOOD}---\n{BAD}")
    return path


def test_lines_are_told(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-f", str(manifest)) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0] == f"{manifest}:1: VirtualMachineInstance/good: allowed"
    assert f"{manifest}:13: VirtualMachine/bad: refused" in told
    assert any(
        line.startswith(f"  {manifest}:26: spec.template.spec.domain.devices.disks[0].disk.bus") for line in told
    )
    assert any(line.startswith(f"  {manifest}:18: spec.runStrategy") for line in told)


def test_one_line_of_json_for_each_object(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-f", str(manifest), "-o", "json") == 1
    good, bad = map(json.loads, capsys.readouterr().out.splitlines())
    assert good["allowed"]
    assert good["defaulted"]["spec"]["domain"]["machine"] == {"type": "q35"}
    assert bad["allowed"] is False
    assert {(cause["field"], cause["type"]) for cause in bad["causes"]} == {
        ("spec.template.spec.domain.devices.disks[0].disk.bus", "FieldValueInvalid"),
        ("spec.runStrategy", "FieldValueInvalid"),
    }
    assert all(cause["message"] for cause in bad["causes"])


def test_json_lines_from_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (document,) = read(GOOD)
    line = json.dumps(document.value)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{line}\n\n{line}\n".encode())))
    assert run("-f", "-", "-o", "json") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_line_that_cannot_be_read_is_told_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (document,) = read(GOOD)
    line = json.dumps(document.value)
    lines = [line, '{"a":' * 100_000 + "1" + "}" * 100_000, "{", line]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode())))
    assert run("-f", "-", "-o", "json") == 1
    told = [json.loads(one) for one in capsys.readouterr().out.splitlines()]
    assert [one["allowed"] for one in told] == [True, False, False, True]
    assert "nested" in told[1]["causes"][0]["message"]


def test_terminals_are_safe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(
        'apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: "\\e[2J"}\nspec: {"\\x07": 1}\n'
    )
    assert run("-f", str(path)) == 1
    told = capsys.readouterr().out
    assert "\\x1b[2J" in told
    assert all(character.isprintable() or character == "\n" for character in told)


def test_a_context(manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    context = tmp_path / "context.json"
    context.write_text(json.dumps({"architecture": "arm64", "configuration": {"evictionStrategy": "External"}}))
    run("-f", str(manifest), "-o", "json", "--context", str(context))
    spec = json.loads(capsys.readouterr().out.splitlines()[0])["defaulted"]["spec"]
    assert (spec["architecture"], spec["evictionStrategy"]) == ("arm64", "External")


def test_a_driver_is_asked_on_request_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(GOOD)
    assert run("-f", str(path), "-o", "json") == 0
    assert "plan" not in json.loads(capsys.readouterr().out)
    run("-f", str(path), "-o", "json", "--class", "cloud-hypervisor")
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert all(finding["message"] and finding["field"].startswith("spec") for finding in plan)


def test_what_is_not_served_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(GOOD.replace('containerDisk: {image: "a:1"}', "memoryDump: {claimName: c}"))
    assert run("-f", str(path)) == 0
    assert f"{path}:10: warning: spec.volumes[0].memoryDump: volumes of this kind" in capsys.readouterr().out


def test_other_kinds_are_let_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n---\n- 1\n---\nkind: VirtualMachine\n")
    assert run("-f", str(path)) == 1
    told = capsys.readouterr().out
    assert "ConfigMap/c: allowed" in told
    assert "the document: refused" in told
    assert "apiVersion or kind is missing" in told


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: [\n", "line 2"),
        (b"a: *b\n", "undefined alias"),
        (b"\xff\xfe\xff", "UTF-8"),
        (b"a: 1\na: 2\n", "line 2: the key 'a' stands there twice"),
        (b"[" * 5000, "line 1"),
        (b"? {a: b}\n: c\n", "a key must be a text"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "m.yaml"
    path.write_bytes(content)
    with pytest.raises(CommandError, match=words):
        run("-f", str(path))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        run("-f", str(tmp_path / "none"))


@pytest.mark.parametrize("content", ["", "[]", "{", '{"configuration": 1}', '{"architecture": 1}'])
def test_a_context_that_is_none(tmp_path: Path, manifest: Path, content: str) -> None:
    path = tmp_path / "context.json"
    path.write_text(content)
    with pytest.raises(CommandError, match="--context"):
        run("-f", str(manifest), "--context", str(path))


def test_a_driver_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(GOOD)
    with pytest.raises(CommandError, match="there is no driver nonesuch"):
        run("-f", str(path), "--class", "nonesuch")


SCALARS: list[tuple[str, Any]] = [
    ("52:54:00:12:34:56", "52:54:00:12:34:56"),
    ("12:30:45", "12:30:45"),
    ("2026-01-01", "2026-01-01"),
    ("yes", "yes"),
    ("true", True),
    ("~", None),
    ("", None),
    ("0x10", 16),
    ("010", 8),
    ("09", 9.0),
    ("-3", -3),
    ("1.5", 1.5),
    ("1e3", 1000.0),
    ("'1'", "1"),
    ("!!str 1", "1"),
    ("9" * 70, "9" * 70),
]


@pytest.mark.parametrize(("written", "value"), SCALARS)
def test_scalars_are_kubernetes_scalars(written: str, value: Any) -> None:
    (document,) = read(f"a: {written}\n")
    assert document.value == {"a": value}


def test_merge_keys_and_lists() -> None:
    (document,) = read("base: &b {a: 1, b: 2}\nmine: {<<: *b, b: 3}\nmany: {<<: [{a: 1}, {a: 2}]}\n")
    assert document.value["mine"] == {"a": 1, "b": 3}
    assert document.value["many"] == {"a": 1}


def test_members_of_a_list_stand_for_themselves() -> None:
    members = read("kind: List\nitems:\n- kind: A\n- kind: B\n  spec:\n    x: 1\n")
    assert [member.value["kind"] for member in members] == ["A", "B"]
    assert members[1].line_of("spec.x") == 6
    assert members[1].line_of("spec.y[0].z") == 5
    assert members[1].line_of("status") == 4


def test_aliases_do_not_explode() -> None:
    bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
    for i in range(1, 9):
        bomb += f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n"
    with pytest.raises(ManifestError, match="aliases"):
        read(bomb)


@given(st.text(alphabet=st.sampled_from("ab:- \n[]{}&*!|>'\"#%?,"), max_size=60))
@settings(deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ManifestError):
        assert isinstance(read(text), list)

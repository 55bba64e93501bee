"""The audit log's file."""

import json
from pathlib import Path

import pytest

from anyvisor.embedded import audit
from anyvisor.embedded.audit import AuditLog
from anyvisor.embedded.instance import create_instance, describe, open_instance


def test_events_are_appended_and_the_file_is_private(tmp_path: Path):
    path = tmp_path / "audit.log"
    for verb in ("get", "list"):
        log = AuditLog(path)
        log.write({"verb": verb})
        log.close()
    assert [json.loads(line)["verb"] for line in path.read_text().splitlines()] == ["get", "list"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_two_files_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audit, "MAX_BYTES", 100)
    log = AuditLog(tmp_path / "audit.log")
    for number in range(100):
        log.write({"number": number})
    log.close()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["audit.log", "audit.log.1"]
    assert all(file.stat().st_size <= 100 for file in files)
    assert json.loads(files[0].read_text().splitlines()[-1]) == {"number": 99}


def test_what_cannot_be_written_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    log = AuditLog(tmp_path / "absent" / "audit.log")
    for _ in range(3):
        log.write({})
    assert caplog.text.count("cannot write the audit log") == 1


def test_the_switch_is_remembered(tmp_path: Path):
    instance = create_instance(tmp_path / "d")
    assert not instance.audit
    describe(type(instance)(instance.data_dir, instance.run_dir, instance.id, 1, "10.96.0.0/22", audit=True))
    assert open_instance(tmp_path / "d").audit

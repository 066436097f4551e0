"""Writing files on file systems that lack a call, or fail in one."""

import errno
import os
from pathlib import Path

import pytest

from meshstage.files import read_json, write_json
from meshstage.models.owner import owned


def fail(monkeypatch, owner, name, number, only_folders=False):
    """Let a call fail with an error number."""
    call = getattr(owner, name)

    def failing(target, *arguments, **named):
        if only_folders and not Path(f"/proc/self/fd/{target}").is_dir():
            return call(target, *arguments, **named)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(owner, name, failing)


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.EINVAL])
@pytest.mark.parametrize("name", ["chmod", "fsync", "fsync of folders"])
def test_a_file_system_may_lack_chmod_and_fsync(tmp_path, monkeypatch, number, name):
    if name == "chmod":
        fail(monkeypatch, Path, "chmod", number)
    else:
        fail(monkeypatch, os, "fsync", number, only_folders=name != "fsync")
    with owned(tmp_path):
        write_json(tmp_path / "a.json", {"a": 1})
    assert read_json(tmp_path / "a.json") == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_a_disk_that_fails_is_an_error_and_the_old_file_stays(tmp_path, monkeypatch, number):
    write_json(tmp_path / "a.json", {"a": 1})
    fail(monkeypatch, os, "fsync", number)
    with pytest.raises(OSError, match=os.strerror(number)):
        write_json(tmp_path / "a.json", {"a": 2})
    assert read_json(tmp_path / "a.json") == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]

"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mreach.files import replacing


def test_a_file_takes_its_name_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with replacing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
        assert Path(file.name).parent == tmp_path
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_new_file_has_the_permissions_of_any_other(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"")
    with replacing(tmp_path / "new"):
        pass
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_whatever_ends_the_writing_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def write_half() -> None:
        with replacing(tmp_path / "result") as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        write_half()
    assert list(tmp_path.iterdir()) == []


def test_a_limit_of_the_system_leaves_the_old_file(tmp_path: Path) -> None:
    """A real failing write, by the system: files may have no more than 1000 bytes."""
    path = tmp_path / "result"
    path.write_bytes(b"old")
    script = (
        "import resource, signal, sys; from mreach.files import replacing\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "with replacing(sys.argv[1]) as file: file.write(bytes(5000))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["result"]


def test_links_are_followed_and_devices_written_to(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    with replacing(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    with replacing(os.devnull) as file:
        file.write(b"gone")
    assert not Path(os.devnull).is_file()
    with pytest.raises(IsADirectoryError, match="is a folder: name a file"), replacing(tmp_path):
        pass

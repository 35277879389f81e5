"""A file is written in full or not at all."""

import errno
import os

import pytest

from laconic.replacing import obstacle, replacing, why_not


def test_file_takes_its_place(tmp_path):
    target = tmp_path / "rows.json"
    target.write_text("old")
    with replacing(target) as file:
        file.write("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_an_error_leaves_the_old_file(tmp_path):
    target = tmp_path / "rows.json"
    target.write_text("old")
    with pytest.raises(KeyError), replacing(target) as file:
        file.write({}["half"])
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_bytes_are_written_as_they_are(tmp_path):
    with replacing(tmp_path / "raw", "wb") as file:
        file.write(b"\r\n\xff")
    assert (tmp_path / "raw").read_bytes() == b"\r\n\xff"


def pipe(path):
    os.mkfifo(path)


def link_to_a_pipe(path):
    os.mkfifo(path.with_name("real"))
    path.symlink_to("real")


IN_THE_WAY = {
    "folder": (lambda path: path.mkdir(), IsADirectoryError, "it is a folder"),
    "pipe": (pipe, FileExistsError, "it is a device or a pipe"),
    "link": (link_to_a_pipe, FileExistsError, "it is a device or a pipe"),
    "no folder": (lambda path: path.parent.rmdir(), FileNotFoundError, "there is no folder"),
}


@pytest.mark.parametrize(("put", "kind", "said"), IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_what_is_in_the_way_stays_there_and_is_told(put, kind, said, tmp_path):
    target = tmp_path / "results" / "rows.json"
    target.parent.mkdir()
    put(target)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(kind, match=said) as caught, replacing(target) as file:
        file.write("new")
    assert caught.value.filename == str(target)
    assert sorted(tmp_path.rglob("*")) == before
    assert why_not(target, obstacle(target)).startswith(f"cannot write {target}: {said}")


def test_errors_name_the_file_and_not_the_temporary_one(tmp_path):
    long = tmp_path / ("n" * 250)
    assert obstacle(long) is None
    with pytest.raises(OSError, match="n" * 250) as caught, replacing(long):
        pass
    assert caught.value.errno == errno.ENAMETOOLONG
    assert caught.value.filename == str(long)


def test_a_full_disk_is_told_as_such(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")
    said = "no room for the 1,234 bytes of m (No space left on device); free some or write elsewhere"
    assert why_not("m", full, 1234) == said

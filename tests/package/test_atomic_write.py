"""A file is written in full or not at all."""

import errno
import os

import pytest

from laconic.atomic_write import NotWritten, atomic_write, check_writable, not_written


def test_file_takes_its_place(tmp_path):
    target = tmp_path / "rows.json"
    target.write_text("old")
    with atomic_write(target) as file:
        file.write("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_an_error_leaves_the_old_file(tmp_path):
    target = tmp_path / "rows.json"
    target.write_text("old")
    with pytest.raises(KeyError), atomic_write(target) as file:
        file.write({}["half"])
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_bytes_are_written_as_they_are(tmp_path):
    with atomic_write(tmp_path / "raw", "wb") as file:
        file.write(b"\r\n\xff")
    assert (tmp_path / "raw").read_bytes() == b"\r\n\xff"


def pipe(path):
    os.mkfifo(path)


def link_to_a_pipe(path):
    os.mkfifo(path.with_name("real"))
    path.symlink_to("real")


OBSTACLES = {
    "folder": (lambda path: path.mkdir(), "it is a folder"),
    "pipe": (pipe, "it is a device or a pipe"),
    "link": (link_to_a_pipe, "it is a device or a pipe"),
    "no folder": (lambda path: path.parent.rmdir(), "there is no folder"),
}


@pytest.mark.parametrize(("put", "why"), OBSTACLES.values(), ids=OBSTACLES)
def test_an_obstacle_stays_and_the_error_names_it(put, why, tmp_path):
    target = tmp_path / "results" / "rows.json"
    target.parent.mkdir()
    put(target)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OSError, match=f"^cannot write {target}: {why}"), atomic_write(target) as file:
        file.write("new")
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(NotWritten, match=why):
        check_writable(target)


def test_what_is_read_is_not_replaced(tmp_path):
    rows, link = tmp_path / "rows.csv", tmp_path / "link"
    rows.write_text("y\n")
    link.symlink_to(rows)
    check_writable(rows, None, tmp_path / "other")
    for path, read in ((rows, rows), (rows, str(link)), (link, rows)):
        with pytest.raises(NotWritten, match="it is a file that is read for it; give another name"):
            check_writable(path, None, read)


def test_errors_name_the_file_and_not_the_temporary_one(tmp_path):
    long = tmp_path / ("n" * 250)
    check_writable(long)
    with pytest.raises(NotWritten, match=f"^cannot write {long}: File name too long$"), atomic_write(long):
        pass


def test_errors_of_other_files_are_not_told_as_this_ones(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "rows.json") as file:
        file.write((tmp_path / "source").read_text())


def test_a_full_disk_is_told_as_such(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")
    said = "no room for the 1,234 bytes of m (No space left on device); free some or write elsewhere"
    assert str(not_written("m", full, 1234)) == said
    with pytest.raises(NotWritten, match="no room of"), atomic_write(tmp_path / "m"):
        raise full

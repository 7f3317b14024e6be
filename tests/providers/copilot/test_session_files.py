import json

import pytest
from copilot.generated.rpc import SessionFSReadFileRequest
from copilot.session_fs_provider import create_session_fs_adapter

from cachegate.providers.copilot.session_files import EVENTS_PATH, STATE_PATH, SessionFiles


async def filled() -> SessionFiles:
    files = SessionFiles()
    await files.mkdir("/state/notes/", recursive=True)
    await files.write_file("/state/notes/a.txt", "a")
    await files.write_file("/state/notes/deep/b.txt", "bb")
    await files.append_file("/state/c.txt", "c")
    return files


async def test_what_is_written_can_be_read() -> None:
    files = await filled()
    await files.append_file("/state/c.txt", "d", mode=0o600)
    assert await files.read_file("/state/c.txt") == "cd"
    await files.write_file("/state/c.txt", "new")
    assert await files.read_file("/state/c.txt") == "new"


async def test_what_is_not_there_is_not_found() -> None:
    files = await filled()
    for reading in (files.read_file("/none"), files.stat("/none"), files.rename("/none", "/x")):
        with pytest.raises(FileNotFoundError):
            await reading
    with pytest.raises(FileNotFoundError):
        await files.rm("/none", recursive=True, force=False)
    await files.rm("/none", recursive=True, force=True)
    assert not await files.exists("/none")


async def test_the_runtime_is_told_so_in_its_own_words() -> None:
    answer = await create_session_fs_adapter(SessionFiles()).read_file(
        SessionFSReadFileRequest.from_dict({"sessionId": "s1", "path": "/none"})
    )
    assert answer.error is not None
    assert answer.error.code.value == "ENOENT"


async def test_folders_are_where_files_are_and_where_they_were_made() -> None:
    files = await filled()
    await files.mkdir("/state/empty", recursive=False)
    for path in ("/state", "/state/", "/state/notes", "/state/notes/deep", "/state/empty"):
        assert await files.exists(path)
        found = await files.stat(path)
        assert (found.is_directory, found.is_file) == (True, False)
    assert not await files.exists("/stat")
    assert await files.readdir("/state") == ["c.txt", "empty", "notes"]
    assert await files.readdir("/state/notes/") == ["a.txt", "deep"]
    assert await files.readdir("/state/empty") == []
    types = [(entry.name, entry.type.value) for entry in await files.readdir_with_types("/state/")]
    assert types == [("c.txt", "file"), ("empty", "directory"), ("notes", "directory")]


async def test_a_files_size_is_of_its_bytes() -> None:
    files = SessionFiles()
    await files.write_file("/a", "ä\ud83d")
    found = await files.stat("/a")
    assert (found.is_file, found.is_directory, found.size) == (True, False, 5)


async def test_a_folder_is_removed_with_all_that_is_in_it() -> None:
    files = await filled()
    await files.write_file("/state/notes.txt", "stays")
    await files.rm("/state/notes", recursive=True, force=False)
    assert await files.readdir("/state") == ["c.txt", "notes.txt"]
    await files.rm("/state/c.txt", recursive=False, force=False)
    assert await files.readdir("/state") == ["notes.txt"]


async def test_a_file_gets_another_name_and_replaces_what_had_it() -> None:
    files = await filled()
    await files.rename("/state/notes/a.txt", "/state/c.txt")
    assert await files.read_file("/state/c.txt") == "a"
    assert not await files.exists("/state/notes/a.txt")


async def test_the_events_are_those_it_began_with_and_those_that_were_appended() -> None:
    files = SessionFiles(b'{"id":"1"}\n{"id":"2"}\n')
    assert await files.exists(STATE_PATH)
    await files.append_file(EVENTS_PATH, '{"id":"3"')
    await files.append_file(EVENTS_PATH, '}\n{"id":"\ud83d"}\n')
    assert files.events()[:3] == (b'{"id":"1"}', b'{"id":"2"}', b'{"id":"3"}')
    assert len(files.events()) == 4
    assert all(json.loads(line.decode("utf-8", "surrogatepass"))["id"] for line in files.events())


async def test_a_new_session_has_no_file_of_events() -> None:
    files = SessionFiles()
    assert files.events() == ()
    assert not await files.exists(EVENTS_PATH)

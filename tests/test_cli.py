"""The command line as a person uses it: real processes, real exit codes, real words."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from cachegate.runtime_directory import VARIABLE, prepare
from cachegate.stores.runtime_database import RuntimeDatabase
from gateway_program import gateway_program

SYNTHETIC = "listen: 127.0.0.1:0\nproviders: {synthetic: {kind: synthetic}}\n"


def run(*args: str, given: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "COLUMNS": "200", **environ}
    command = [sys.executable, "-m", "cachegate", *args]
    return subprocess.run(
        command, env=environment, input=given, capture_output=True, text=True, timeout=60, check=False
    )


def test_check_says_what_the_configuration_means(tmp_path: Path) -> None:
    done = run("check")
    assert done.returncode == 0
    assert "anthropic (the client's own key)" in done.stdout
    path = tmp_path / "c.yaml"
    path.write_text("listn: 1\nmodels: {a: nowhere}\n")
    done = run("check", "--config", str(path))
    assert done.returncode == 1
    assert "listn: there is no such key. Did you mean listen?" in done.stderr
    assert "models.a: there is no provider 'nowhere'" in done.stderr
    assert run("check", CACHEGATE_CONFIG=str(path)).returncode == 1


def test_schema_is_json_schema() -> None:
    schema = json.loads(run("schema").stdout)
    assert schema["properties"]["cacheGuard"]["default"]["largeTokens"] == 65_536


def test_version_and_help() -> None:
    assert run("version").stdout.startswith("cachegate ")
    assert "diagnostics" in run("--help").stdout


ANSWER = '{"type":"message","stop_reason":"end_turn","usage":{"input_tokens":9,"cache_read_input_tokens":70000}}'


def test_read_usage_prints_what_would_be_recorded() -> None:
    done = run("read-usage", "--provider", "anthropic", given=ANSWER)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "input total  70,009\ncached read  70,000\ncache write  not reported\nuncached     9\noutcome      finished\n"
    )
    assert done.stderr == ""
    as_json = json.loads(run("read-usage", "--provider", "anthropic", "--json", given=ANSWER).stdout)
    assert (as_json["cachedTokens"], as_json["cacheWriteTokens"]) == (70_000, None)
    stream = (
        'data: {"choices":[],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":0}}}\n\ndata: [DONE]'
    )
    asked = ("read-usage", "--provider", "openrouter", "--protocol", "chat", "--sse")
    assert "cached read  0\n" in run(*asked, given=stream).stdout
    assert "cached read  not reported\n" in run(*asked, "--zero-is-unknown", given=stream).stdout
    failed = run("read-usage", "--provider", "codex", "--status", "502", given="<html>")
    assert "outcome      failed unknown\n" in failed.stdout


@pytest.mark.parametrize(
    ("asked", "given", "words"),
    [
        (("--provider", "nobody"), ANSWER, "There is no provider 'nobody'. Known are: anthropic, azure"),
        (("--provider", "openai"), ANSWER, "Add --protocol with one of: responses, chat."),
        (("--provider", "anthropic"), "", "There is no payload."),
        (("--provider", "anthropic"), "data: {}", "It looks like a stream: add --sse."),
    ],
)
def test_read_usage_says_what_it_cannot_read(asked: tuple[str, ...], given: str, words: str) -> None:
    done = run("read-usage", *asked, given=given)
    assert done.returncode == 1
    assert done.stdout == ""
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_demo_does_what_it_promises() -> None:
    done = run("demo")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("The guard did what it promises.\n")


def test_doctor_says_what_is_missing(tmp_path: Path) -> None:
    done = run("doctor", "--program", str(tmp_path / "claude"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"Claude Code's program was not found at '{tmp_path}/claude'. Install Claude Code" in done.stderr
    assert "Traceback" not in done.stderr


def test_diagnostics_without_a_gateway_says_how_to_start_one(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("listen: 127.0.0.1:9\n")
    done = run("diagnostics", "--config", str(path))
    assert done.returncode == 1
    assert "No gateway answers at http://127.0.0.1:9. Start it with: cachegate serve" in done.stderr


async def ask(url: str, model: str, *, stream: bool = True) -> bytes:
    body = {"model": f"synthetic/{model}", "stream": stream, "input": "x" * 400_000}
    async with aiohttp.ClientSession() as client, client.post(f"{url}/v1/responses", json=body) as response:
        return await response.read()


async def test_serve_greets_logs_a_line_per_request_and_ends_on_a_signal(tmp_path: Path) -> None:
    async with gateway_program(SYNTHETIC, tmp_path) as gateway:
        for part in (
            "Cachegate listens on",
            "synthetic (embedded, no account)",
            "cachegate run claude",
            "/v1 (openai)",
        ):
            assert any(part in line for line in gateway.greeting)
        assert len(gateway.greeting) <= 8
        for _ in range(3):
            await ask(gateway.url, "cold")
        shown = await asyncio.to_thread(run, "diagnostics", "--config", _at(tmp_path, gateway.url))
        as_json = await asyncio.to_thread(run, "diagnostics", "--json", "--config", _at(tmp_path, gateway.url))
        code, _, err = await gateway.stop(signal.SIGTERM)
    assert code == 0
    lines = err.splitlines()
    assert len(lines) == 3
    assert "guard allowed (miss, count 1)" in lines[0]
    assert "guard blocked (measured, count 2, unchanged)" in lines[2]
    assert shown.stdout.count("allowed") == 2
    assert shown.stdout.count("blocked") == 1
    assert shown.stdout.count("unchanged") == 2, "the second miss and the stop say why"
    assert "not reported" not in shown.stdout, "what was stopped measured nothing, which is no failure to report"
    assert [row["outcome"] for row in json.loads(as_json.stdout)] == ["blocked", "allowed", "allowed"]


def _at(folder: Path, url: str) -> str:
    path = folder / "running.yaml"
    path.write_text(f"listen: {url.removeprefix('http://')}\n")
    return str(path)


async def test_workers_of_one_directory_are_one_guard_and_one_that_is_killed_is_settled_for_r13(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "runtime"
    prepare(runtime)
    monkeypatch.setenv(VARIABLE, str(runtime))
    alone = ("--workers", "0")
    async with (
        gateway_program(SYNTHETIC, tmp_path, *alone) as old,
        gateway_program(SYNTHETIC, tmp_path, *alone) as new,
    ):
        await ask(old.url, "cold")
        hanging = {"model": "synthetic/cold+hang", "stream": True, "input": "x" * 400_000}
        assert b"Input tokens" in await ask(new.url, "cold"), "the second of two"
        assert b"re-processed" in await ask(old.url, "cold"), "wherever it is asked"
        async with aiohttp.ClientSession() as client:
            async with client.post(f"{old.url}/v1/responses", json=hanging) as response:
                await response.content.readuntil(b"\n\n")
                assert _leases(runtime) == 1
                old.process.kill()
                await old.process.wait()
            async with asyncio.timeout(60):
                while _leases(runtime):  # noqa: ASYNC110 -- the other process frees it
                    await asyncio.sleep(0.01)
        shown = await asyncio.to_thread(run, "diagnostics", "--json", "--config", _at(tmp_path, new.url))
        await new.stop(signal.SIGTERM)
    assert [row["outcome"] for row in json.loads(shown.stdout)] == ["blocked", "allowed", "allowed"], "of both"


def _leases(runtime: Path) -> int:
    database = RuntimeDatabase(runtime)
    with database.transaction() as inside:
        (leases,) = inside.execute("SELECT count(*) FROM leases").fetchone()
    database.close()
    return int(leases)


async def test_logs_are_json_on_request(tmp_path: Path) -> None:
    async with gateway_program(SYNTHETIC, tmp_path, "--log-json") as gateway:
        await ask(gateway.url, "unreported", stream=False)
        _, _, err = await gateway.stop(signal.SIGINT)
    line = json.loads(err)
    assert (line["status"], line["cachedTokens"], line["guard"]["reason"]) == (200, None, "unreported")


async def test_the_first_signal_waits_for_running_answers_and_the_second_ends_them(tmp_path: Path) -> None:
    async with gateway_program(SYNTHETIC, tmp_path) as gateway:
        body = {"model": "synthetic/hang", "stream": True, "messages": []}
        async with (
            aiohttp.ClientSession() as client,
            client.post(f"{gateway.url}/v1/messages", json=body) as response,
        ):
            await response.content.readuntil(b"\n\n")
            gateway.process.send_signal(signal.SIGINT)
            assert gateway.process.stdout is not None
            said = await asyncio.wait_for(gateway.process.stdout.readline(), 10)
            assert said.startswith(b"Waiting for 1 running request; press Ctrl-C again")
            stopping = asyncio.create_task(gateway.stop(signal.SIGINT))
            rest = await response.read()
        code, _, err = await stopping
    assert code == 0
    assert b"event: error" in rest
    assert "shutdown" in err


async def test_an_address_in_use_is_a_sentence_and_no_traceback(tmp_path: Path) -> None:
    async with gateway_program(SYNTHETIC, tmp_path) as gateway:
        done = await asyncio.to_thread(run, "serve", "--config", _at(tmp_path, gateway.url))
    assert done.returncode == 1
    assert done.stderr.startswith("Cannot listen on 127.0.0.1:")
    assert "Traceback" not in done.stderr


def test_listen_can_be_given_and_is_checked_like_the_rest() -> None:
    done = run("serve", "--listen", "nonsense")
    assert done.returncode == 1
    assert "must be host:port" in done.stderr
    done = run("serve", "--listen", "0.0.0.0:0")
    assert done.returncode == 1
    assert "reachable from other machines" in done.stderr


@pytest.mark.parametrize("running", [True, False])
async def test_run_starts_the_client_against_a_gateway_running_or_not(tmp_path: Path, running: bool) -> None:
    """A stand-in for `claude` on PATH shows what it was given and whether a gateway answers there."""
    client = tmp_path / "claude"
    client.write_text(
        f"#!{sys.executable}\nimport os, sys, urllib.request\n"
        "url = os.environ['ANTHROPIC_BASE_URL']\n"
        "print(urllib.request.urlopen(url + '/health').status, os.environ['CLAUDE_CODE_GATEWAY_HINT_HEADERS'],"
        " *sys.argv[1:])\nsys.exit(7)\n"
    )
    client.chmod(client.stat().st_mode | stat.S_IXUSR)
    async with gateway_program(SYNTHETIC, tmp_path) as gateway:
        path = _at(tmp_path, gateway.url)
        if not running:
            await gateway.stop(signal.SIGTERM)
        done = await asyncio.to_thread(
            run, "run", "--config", path, "claude", "-p", "-c", "--config", "--help", "x y",
            PATH=f"{tmp_path}:{os.environ['PATH']}", HOME=str(tmp_path),
        )  # fmt: skip
    assert done.stdout == "200 1 -p -c --config --help x y\n", done.stderr
    assert done.returncode == 7


def test_run_names_what_is_missing() -> None:
    assert "knows claude, codex, opencode" in run("run", "emacs").stderr
    done = run("run", "claude", PATH="/nonexistent")
    assert done.returncode == 1
    assert "claude is not on your PATH" in done.stderr

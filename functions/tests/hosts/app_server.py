"""Codex as editors drive it, by JSON-RPC on its standard streams: it uses tools without a model, and so without an account."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from hosts.clients import Program


class AppServer:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._asked = 0

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._asked += 1
        self.send(id=self._asked, method=method, params=params)
        assert self._process.stdout
        async with asyncio.timeout(60):
            async for line in self._process.stdout:
                told = json.loads(line)
                if told.get("id") == self._asked and "method" not in told:
                    assert "result" in told, told
                    return told["result"]
        raise AssertionError(f"it ended without an answer to {method}")

    def send(self, **message: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{json.dumps(message)}\n".encode())

    async def metacortex(self) -> dict[str, Any]:
        """How it finds the server when it connects."""
        [server] = (await self.ask("mcpServerStatus/list", detail="toolsAndAuthOnly"))["data"]
        return server

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        begun = await self.ask("thread/start", ephemeral=True, approvalPolicy="never", sandbox="read-only")
        thread = begun["thread"]["id"]
        return await self.ask(
            "mcpServer/tool/call", threadId=thread, server="metacortex", tool=tool, arguments=arguments
        )


@asynccontextmanager
async def app_server(codex: Program) -> AsyncGenerator[AppServer]:
    process = await asyncio.create_subprocess_exec(
        *(*codex.command, "app-server"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=codex.environment,
        cwd=codex.home,
        limit=2**24,
    )
    server = AppServer(process)
    try:
        await server.ask("initialize", clientInfo={"name": "tests", "title": "Tests", "version": "1"})
        server.send(method="initialized")
        yield server
    finally:
        process.terminate()
        await process.communicate()

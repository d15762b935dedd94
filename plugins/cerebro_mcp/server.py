"""The server: the tools over the Model Context Protocol."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.to_thread
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from cerebro_elastic.extending.errors import CerebroError
from cerebro_elastic.extending.running import Allowance, Run, brief
from cerebro_mcp.tools import TOOLS, Desk, call

_INSTRUCTIONS = (
    "A run of cerebro-elastic trains many configurations of a model side by side. Read the leaderboard "
    "before you propose: it has the space, the noise, what was tried and why it ended. Every change needs a "
    "reason, which goes on record with your name. A refused change has changed nothing: the text says why."
)
_LONGEST_REFUSAL = 1_500


def serve(run: Run, allowance: Allowance, *, may_stop: bool = False) -> None:
    """Serve a run to an agent over standard input and output, until the agent closes them."""
    try:
        anyio.run(_serve, server_of(Desk(run, allowance, may_stop)))
    except* BrokenPipeError:  # the agent left without waiting for an answer
        pass


async def _serve(server: Server[Any]) -> None:
    async with stdio_server() as (requests, answers):
        await server.run(requests, answers, server.create_initialization_options())


def server_of(desk: Desk) -> Server[Any]:
    """The server of a run."""

    async def list_tools(
        _context: ServerRequestContext[Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=[_tool(name) for name in TOOLS])

    async def call_tool(_context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        # The record is read in a thread, so that other calls are not blocked.
        text, refused = await anyio.to_thread.run_sync(_answer, desk, params)
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=refused)

    return Server("cerebro", instructions=_INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool)


def _answer(desk: Desk, params: CallToolRequestParams) -> tuple[str, bool]:
    """The tool's answer, and whether it is a refusal."""
    try:
        return call(desk, params.name, params.arguments or {}), False
    except CerebroError as error:
        return brief(f"refused: {error}", _LONGEST_REFUSAL), True


def _tool(name: str) -> Tool:
    kind = TOOLS[name]
    return Tool(
        name=name,
        description=" ".join((kind.__doc__ or "").split()),
        input_schema=kind.model_json_schema(),
        annotations=ToolAnnotations(
            read_only_hint=kind.reads, destructive_hint=name == "stop", open_world_hint=False
        ),
    )

"""What is said of a server is one record, which each command and each face renders."""

from __future__ import annotations

import sys

import pytest

ODD = {"name": "odd", "inputSchema": {"type": "string"}}
GOOD = {"name": "good", "inputSchema": {"type": "object"}}


@pytest.mark.asyncio
async def test_a_report_has_the_state_the_problem_and_the_way_on(stage):
    servers = {
        "good": stage.entry(tools=[GOOD]),
        "part": stage.entry(tools=[GOOD, ODD]),
        "ends": stage.entry(exit=True),
        "gone": {"command": "/no/such/program"},
        "slow": stage.entry(hang=True, stderr=1),
    }
    async with stage.box(**servers) as box:
        managed = box.workspace.services.mcp_servers
        for name in ("good", "part", "ends", "gone"):
            await managed.wait_settled(20, name)
        while "last words" not in managed.connections["slow"].stderr.text:
            await managed.wait_settled(0.02, "slow")
        managed.pending = ("theirs",)
        reports = managed.reports()
    assert (reports["good"].summary(), reports["good"].next_step) == ("1 tool", "")
    assert reports["good"].summary(prompts=2) == "1 tool, 2 prompts"
    assert reports["good"].where.startswith(sys.executable)
    assert reports["part"].summary() == "1 tool, left out: odd (`wieldy mcp get part`)"
    assert "its input is of type" in reports["part"].left_out["odd"]
    assert "no licence" in reports["ends"].problem and reports["ends"].next_step == "wieldy mcp get ends"
    assert reports["gone"].summary() == "failed: there is no program `/no/such/program`"
    assert reports["slow"].summary() == "connecting: no answer yet (last words)"
    theirs = reports["theirs"]
    assert theirs.summary() == "needs approval: run `wieldy permissions trust`"
    assert (theirs.next_step, theirs.kind, dict(theirs.tools)) == ("wieldy permissions trust", "", {})

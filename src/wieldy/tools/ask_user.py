"""AskUser: questions to the person that only the person can answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Struct

from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import FunctionTool, load_description
from wieldy.core.user_questions import UserQuestion, UserQuestions
from wieldy.core.workspace import Workspace
from wieldy.schema.fields import Param

DESCRIPTION, PROMPT = load_description(__file__)
A_DAY = 86_400.0


class Asked(Struct, frozen=True):
    """One question."""

    question: Annotated[str, Param(min_length=1)]
    options: tuple[str, ...] = ()
    multi_select: bool = False


class AskUser(FunctionTool):
    """Shows a person the questions whole."""

    def show_use(self, input: Mapping[str, Any]) -> str:
        """The questions, one a line."""
        return "\n".join(str(asked.get("question", "")) for asked in input.get("questions", ()))


def _somebody(workspace: Workspace) -> bool | str:
    return workspace.service(UserQuestions).handler is not None or "nobody is there to answer"


async def _ask(ctx: ToolContext, questions: Annotated[list[Asked], Param(min_length=1, max_length=8)]) -> Output:
    """Ask."""
    inquiries = [UserQuestion(asked.question, asked.options, asked.multi_select) for asked in questions]
    replies = await ctx.workspace.service(UserQuestions).answer(inquiries)
    answers = {asked.question: str(reply) for asked, reply in zip(questions, replies, strict=True)}
    told = "\n".join(f"{question}\n→ {answer or '(no answer)'}" for question, answer in answers.items())
    return Output(f"The user answered:\n{told}", {"answers": answers})


ask_user = AskUser(
    _ask,
    {
        "name": "AskUser",
        "description": DESCRIPTION,
        "prompt": PROMPT,
        "read_only": True,
        "needs_permission": False,
        "concurrency_safe": False,
        "enabled": _somebody,
        "timeout": A_DAY,
    },
)

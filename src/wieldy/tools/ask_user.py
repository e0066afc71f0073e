"""AskUser: asks the user questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Struct

from wieldy.core.schema.fields import Param
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import FunctionTool, drop_fields, tool
from wieldy.core.user_questions import UserQuestion
from wieldy.core.workspace import Workspace

DAY_SECONDS = 86_400.0


class QuestionInput(Struct, frozen=True):
    question: Annotated[str, Param(min_length=1)]
    options: tuple[str, ...] = ()
    multi_select: bool = False


class AskUser(FunctionTool):
    def show_use(self, input: Mapping[str, Any]) -> str:
        return "\n".join(str(question.get("question", "")) for question in input.get("questions", ()))


def _enabled(workspace: Workspace) -> bool | str:
    return workspace.services.user_questions.available or "no person is there to answer"


def _translate(input: dict[str, Any]) -> dict[str, Any]:
    """The questions of Claude Code: with a header, and options that have a description."""
    questions = input.get("questions")
    if not isinstance(questions, list):
        return input
    return {
        **drop_fields(input, "answers", "annotations", "metadata"),
        "questions": [_translate_question(each) if isinstance(each, dict) else each for each in questions],
    }


def _translate_question(question: dict[str, Any]) -> dict[str, Any]:
    ours = drop_fields(question, "header")
    if "multi_select" not in ours and "multiSelect" in ours:
        ours["multi_select"] = ours.pop("multiSelect")
    if isinstance(options := ours.get("options"), list):
        ours["options"] = [_translate_option(option) for option in options]
    return ours


def _translate_option(option: Any) -> Any:
    match option:
        case {"label": str(label), "description": str(description)} if description:
            return f"{label}: {description}"
        case {"label": str(label)}:
            return label
    return option


@tool(
    cls=AskUser,
    name="AskUser",
    described_in=__file__,
    group="person",
    fails={"questions": []},
    read_only=True,
    needs_permission=False,
    concurrency_safe=False,
    enabled=_enabled,
    translate=_translate,
    timeout=DAY_SECONDS,
)
async def ask_user(
    ctx: ToolContext, questions: Annotated[list[QuestionInput], Param(min_length=1, max_length=8)]
) -> Output:
    user_questions = [UserQuestion(each.question, each.options, each.multi_select) for each in questions]
    replies = await ctx.workspace.services.user_questions.answer(user_questions, ctx.call_id)
    answers = {each.question: str(reply) for each, reply in zip(questions, replies, strict=True)}
    lines = "\n".join(f"{question}\n→ {answer or '(no answer)'}" for question, answer in answers.items())
    return Output(f"The user answered:\n{lines}", {"answers": answers})

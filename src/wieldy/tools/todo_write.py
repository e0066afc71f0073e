"""TodoWrite: the task list that the user sees."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from wieldy.core.events import Notice
from wieldy.core.outcome import ToolResult
from wieldy.core.schema.fields import Param
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import FunctionTool, drop_fields, tool

SYMBOLS = {"pending": "☐", "in_progress": "▶", "completed": "☑"}


class Todo(Struct, frozen=True):
    content: Annotated[str, Param(min_length=1)]
    status: Literal["pending", "in_progress", "completed"]
    activeForm: Annotated[str, "Shown meanwhile: Running tests"] = ""

    def __str__(self) -> str:
        in_progress = self.status == "in_progress" and self.activeForm
        return f"{SYMBOLS[self.status]} {self.activeForm if in_progress else self.content}"


class TodoList:
    """The current tasks of a workspace: `workspace.services.todo_list.todos`."""

    def __init__(self) -> None:
        self.todos: tuple[Todo, ...] = ()


class TodoWrite(FunctionTool):
    def show_result(self, result: ToolResult) -> str:
        """The list instead of the acknowledgement."""
        todos = result.data.get("todos", ()) if isinstance(result.data, dict) else ()
        return "\n".join(str(Todo(**todo)) for todo in todos) or result.text


def _translate_todo(todo: Any) -> Any:
    return drop_fields(todo, "id", "priority") if isinstance(todo, dict) else todo


def _translate(input: dict[str, Any]) -> dict[str, Any]:
    """Leave out what older models send: tasks had an id and a priority, and `merge` said whether to keep the others."""
    todos = input.get("todos")
    if isinstance(todos, list):
        input = {**input, "todos": [_translate_todo(todo) for todo in todos]}
    return input if input.get("merge") else drop_fields(input, "merge")


@tool(
    cls=TodoWrite,
    name="TodoWrite",
    described_in=__file__,
    fails={"todos": [{"content": "x"}]},
    translate=_translate,
    read_only=True,
    needs_permission=False,
    concurrency_safe=False,
)
async def todo_write(ctx: ToolContext, todos: Annotated[list[Todo], Param("The whole list", max_length=200)]) -> Output:
    ctx.workspace.services.todo_list.todos = tuple(todos)
    data = {"todos": [asdict(todo) for todo in todos]}
    ctx.emit(Notice(text=_headline(todos), data=data))
    in_progress = sum(todo.status == "in_progress" for todo in todos)
    advice = " Only one task at a time can be in progress: correct the list." if in_progress > 1 else ""
    return Output(f"Noted. {_headline(todos)}.{advice}", data)


def _headline(todos: list[Todo]) -> str:
    if not todos:
        return "There are no tasks"
    done = sum(todo.status == "completed" for todo in todos)
    now = next((todo.activeForm or todo.content for todo in todos if todo.status == "in_progress"), "")
    return f"{done} of {len(todos)} tasks done" + (f"; now: {now}" if now else "")

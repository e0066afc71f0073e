"""The inline session on a real pseudo-terminal, seen through a terminal emulator."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.process.inline_terminal import WIELDY, InlineTerminal

Opener = Callable[..., InlineTerminal]
TOUCH = {"call": "Bash", "input": {"command": "touch made"}}


@pytest.fixture
def inline(project: Path, environment: dict[str, str], tmp_path: Path) -> Iterator[Opener]:
    opened: list[InlineTerminal] = []

    def start(
        *argv: str,
        turns: list[object] | None = None,
        script: dict[str, object] | None = None,
        columns: int = 80,
        lines: int = 24,
        env: dict[str, str] | None = None,
        program: Sequence[str] = WIELDY,
    ) -> InlineTerminal:
        (tmp_path / "script.json").write_text(json.dumps({"turns": turns or [], **(script or {})}))
        argv = ("--model", f"script:{tmp_path / 'script.json'}", *argv)
        terminal = InlineTerminal(list(argv), project, {**environment, **(env or {})}, columns, lines, program)
        opened.append(terminal)
        terminal.wait_for("· script")
        return terminal

    yield start
    for terminal in opened:
        terminal.close()


def test_an_answer_streams_in_and_stays_as_ordinary_text(inline: Opener) -> None:
    terminal = inline(turns=[[{"text": "# Title\n\nSome **bold** text.\n\n```\ncode  here\n```\n\n- one\n- two\n"}]])
    terminal.send("hello")
    terminal.wait_for("• two")
    terminal.wait_until_gone("Esc stops")
    rows = terminal.rows()
    start = rows.index("› hello")
    assert rows[start : start + 11] == [
        "› hello",
        "",
        "Title",
        "",
        "Some bold text.",
        "",
        "code  here",
        "",
        "• one",
        "• two",
        "",
    ]
    assert rows[start + 11].startswith("› ")
    assert rows[-1] == "  default · script.json"


def test_it_never_takes_the_screen_the_scrollback_or_the_mouse(inline: Opener) -> None:
    terminal = inline(turns=[[{"text": "line\n\n" * 60 + "Over."}]])
    terminal.send("go")
    terminal.wait_for("Over.")
    terminal.press("\x04")
    assert terminal.wait_for_exit() == 0
    for forbidden in (b"\x1b[2J", b"\x1b[3J", b"\x1b[J", b"\x1bc", b"1049", b"?1000", b"?1002", b"?1003", b"\x1b[6n"):
        assert forbidden not in terminal.output
    assert terminal.history().count("line") == 60


@pytest.mark.parametrize("keys", ["y\r", "1\r", "\r", "\r\r", "1", "yes\r"])
def test_keys_typed_ahead_of_a_question_do_not_answer_it(inline: Opener, project: Path, keys: str) -> None:
    terminal = inline(turns=[[{"pause": 1.0}, TOUCH], [{"text": "Over."}], [{"text": "Next."}]])
    terminal.send("make it")
    terminal.wait_for("Esc stops")
    terminal.press(keys)
    terminal.wait_for("Run this command?")
    terminal.press(keys)
    terminal.read(1.0)
    assert not (project / "made").exists()
    assert any("Run this command?" in row for row in terminal.rows())


def test_a_draft_is_kept_while_a_question_waits_for_tab(inline: Opener, project: Path) -> None:
    terminal = inline(turns=[[{"pause": 0.5}, TOUCH], [{"text": "Over."}]])
    terminal.send("make it")
    terminal.type("my draft 1")
    terminal.wait_for("Run this command?")
    terminal.wait_for("Tab to answer")
    terminal.type("1")
    terminal.read(0.7)
    assert not (project / "made").exists()
    terminal.answer("\t")
    terminal.answer("1")
    terminal.wait_for("Over.")
    assert (project / "made").exists()
    assert any(row.startswith("› my draft 11") for row in terminal.rows())


def test_text_typed_at_a_question_becomes_a_draft(inline: Opener, project: Path) -> None:
    terminal = inline(turns=[[TOUCH], [{"text": "Over."}], [{"text": "Next."}]])
    terminal.send("make it")
    terminal.wait_for("Run this command?")
    terminal.read(0.8)
    terminal.type("yes 1 please")
    terminal.wait_for("Tab to answer")
    terminal.wait_for("› yes 1 please")
    terminal.press("\r")
    terminal.wait_for("queued yes 1 please")
    assert not (project / "made").exists()
    terminal.answer("1")
    terminal.wait_for("Next.")
    assert (project / "made").exists()


def test_a_question_is_answered_by_number_and_the_rule_is_saved_where_chosen(inline: Opener, project: Path) -> None:
    terminal = inline(turns=[[TOUCH], [{"text": "Over."}]])
    terminal.send("make it")
    terminal.wait_for("Run this command?")
    terminal.answer("\x1b[B")
    terminal.wait_for("in this project ◂ ▸")
    terminal.press("\x1b[D")
    terminal.wait_for("for this session")
    terminal.press("\r")
    terminal.wait_for("Over.")
    assert (project / "made").exists()
    assert not (project / ".wieldy").exists()


def test_a_no_with_words_goes_to_the_model_and_the_draft_comes_back(inline: Opener, project: Path) -> None:
    terminal = inline(turns=[[{"pause": 0.4}, TOUCH], [{"text": "Over."}]])
    terminal.send("make it")
    terminal.type("draft")
    terminal.wait_for("Tab to answer")
    terminal.answer("\t")
    terminal.press("4")
    terminal.wait_for("Enter sends your words")
    terminal.send("use the Write tool")
    terminal.wait_for("you said no: use the Write tool")
    terminal.wait_for("Over.")
    assert not (project / "made").exists()
    assert any(row.startswith("› draft") for row in terminal.rows())


def test_a_question_that_is_left_stops_the_run(inline: Opener, project: Path) -> None:
    terminal = inline(turns=[[TOUCH], [{"text": "Still here."}]])
    terminal.send("make it")
    terminal.wait_for("Run this command?")
    terminal.answer("\x1b")
    terminal.wait_for("■ interrupted")
    assert not (project / "made").exists()
    terminal.send("and now?")
    terminal.wait_for("Still here.")


def test_escape_stops_the_run_and_the_queue_waits_for_enter(inline: Opener) -> None:
    terminal = inline(turns=[[{"call": "Bash", "input": {"command": "sleep 300"}}], [{"text": "Second."}]])
    terminal.send("wait")
    terminal.wait_for("● Bash sleep 300")
    terminal.send("next message")
    terminal.wait_for("queued next message")
    terminal.press("\x1b")
    terminal.wait_for("■ interrupted")
    terminal.wait_for("Enter sends the queued message")
    assert not any("Second." in row for row in terminal.rows())
    terminal.press("\r")
    terminal.wait_for("Second.")


def test_a_queued_message_is_sent_after_the_run_and_can_be_taken_back(inline: Opener) -> None:
    turns = [[{"text": "First."}, {"pause": 1.5}], [{"text": "Second."}]]
    terminal = inline(turns=turns)
    terminal.send("one")
    terminal.wait_for("First.")
    terminal.send("two")
    terminal.send("three")
    terminal.wait_for("queued three")
    terminal.press("\x1b[A")
    terminal.wait_until_gone("queued three")
    assert any(row.startswith("› three") for row in terminal.rows())
    terminal.wait_for("Second.")
    assert "› two" in terminal.rows()


def test_control_c_clears_a_draft_and_two_on_an_empty_box_leave(inline: Opener) -> None:
    terminal = inline()
    terminal.type("some draft")
    terminal.wait_for("some draft")
    terminal.press("\x03")
    terminal.wait_until_gone("some draft")
    assert terminal.process.poll() is None
    terminal.press("\x03")
    terminal.wait_for("Ctrl-C again to leave")
    terminal.press("\x03")
    assert terminal.wait_for_exit() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_leaves_a_sane_terminal_and_a_session_to_resume(
    inline: Opener, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    terminal = inline(turns=[[{"text": "Noted."}], [{"text": "On and on. " * 200}]], script={"chunk": 3, "delay": 0.02})
    terminal.send("remember")
    terminal.wait_for("Noted.")
    terminal.wait_until_gone("Esc stops")
    terminal.send("more")
    terminal.wait_for("On and on.")
    terminal.signal(number)
    assert terminal.wait_for_exit() == code
    assert terminal.modes() == terminal.modes_before
    assert terminal.output.rstrip().rfind(b"\x1b[?2004l") > terminal.output.rfind(b"\x1b[?2004h")
    assert terminal.output.rfind(b"\x1b[?25h") > terminal.output.rfind(b"\x1b[?25l")
    assert list((tmp_path / "state").glob("sessions/*/transcript.jsonl"))


def test_a_long_paste_is_folded_and_sent_whole(inline: Opener, tmp_path: Path) -> None:
    terminal = inline(turns=[[{"text": "Read."}]])
    text = "\n".join(f"line {number}" for number in range(5000))
    terminal.press(f"\x1b[200~{text}\x1b[201~")
    terminal.wait_for("[Pasted 5000 lines]")
    terminal.send(" look")
    terminal.wait_for("Read.")
    terminal.press("\x04")
    terminal.wait_for_exit()
    [transcript] = (tmp_path / "state").glob("sessions/*/transcript.jsonl")
    assert "line 4999 look" in transcript.read_text()


def test_a_burst_with_line_breaks_is_a_paste(inline: Opener) -> None:
    terminal = inline(turns=[[{"text": "Read."}]])
    terminal.press("first line\rsecond line\r")
    terminal.wait_for("second line")
    terminal.read(0.5)
    rows = terminal.rows()
    assert any(row == "› first line" for row in rows)
    assert any(row == "  second line" for row in rows)
    assert not any("Read." in row for row in rows)


@pytest.mark.parametrize("key", ["\n", "\x1b\r", "\\\r", "\x1b[13;2u", "\x1b[27;2;13~"])
def test_several_lines_can_be_typed(inline: Opener, key: str) -> None:
    terminal = inline()
    terminal.type("above")
    if key.startswith("\\"):
        terminal.type(key)
    else:
        terminal.press(key)
    terminal.read(0.2)
    terminal.type("below")
    terminal.wait_for("below")
    rows = terminal.rows()
    assert "› above" in rows
    assert "  below" in rows


KEY_MODES = [("xterm-kitty", b"\x1b[>1u", b"\x1b[<u"), ("foot", b"\x1b[>4;1m", b"\x1b[>4m")]


@pytest.mark.parametrize(("term", "on", "off"), KEY_MODES)
@pytest.mark.parametrize("end", ["leave", "signal", "pager"])
def test_the_report_of_modified_keys_is_switched_off_again(
    inline: Opener, tmp_path: Path, term: str, on: bytes, off: bytes, end: str
) -> None:
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\necho in the pager; sleep 1; cat > {tmp_path}/paged\n")
    pager.chmod(0o755)
    terminal = inline("!echo hi", env={"TERM": term, "PAGER": str(pager)})
    terminal.wait_for("✓ Bash echo hi")
    assert terminal.output.count(on) == 1
    assert off not in terminal.output
    if end == "pager":
        terminal.press("\x0f")
        terminal.wait_for("in the pager")
        assert terminal.output.count(off) == 1
        terminal.wait_for("Ask, or type")
        terminal.read(1.5)
        assert terminal.output.count(on) == 2
    terminal.press("\x04") if end != "signal" else terminal.signal(signal.SIGTERM)
    terminal.wait_for_exit()
    assert terminal.output.count(on) == terminal.output.count(off)
    assert terminal.output.rfind(off) > terminal.output.rfind(on)


def test_a_terminal_that_is_not_known_to_report_keys_is_not_asked(inline: Opener) -> None:
    terminal = inline()
    terminal.read(0.5)
    assert b"\x1b[>" not in terminal.output


def test_keys_work_as_kitty_reports_them(inline: Opener) -> None:
    turns = [[{"call": "Bash", "input": {"command": "sleep 300"}}], [{"text": "Second."}]]
    terminal = inline(turns=turns, env={"TERM": "xterm-kitty"})
    terminal.type("above")
    terminal.press("\x1b[13;2u")
    terminal.type("below")
    terminal.wait_for("below")
    assert terminal.rows()[-3:-1] == ["› above", "  below"]
    terminal.press("\x1b[99;5u")
    terminal.wait_until_gone("below")
    terminal.press("\x1b[9;2u")
    terminal.wait_for("accept edits")
    terminal.send("wait")
    terminal.wait_for("● Bash sleep 300")
    terminal.press("\x1b[27u")
    terminal.wait_for("■ interrupted")
    terminal.press("\x1b[100;5u")
    assert terminal.wait_for_exit() == 0


JOB_CONTROL_SHELL = """import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
"""


def test_a_suspended_session_leaves_the_shell_a_sane_terminal_and_comes_back(
    project: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    script = {"turns": [[{"text": "Said."}], [{"text": "On and on. " * 100}]], "chunk": 8, "delay": 0.03}
    (tmp_path / "script.json").write_text(json.dumps(script))
    command = shlex.join([*WIELDY, "--model", f"script:{tmp_path / 'script.json'}", "hello"])
    env = {**environment, "PS1": "shell> ", "TERM": "xterm-kitty"}
    terminal = InlineTerminal([], project, env, program=[sys.executable, "-c", JOB_CONTROL_SHELL])
    try:
        terminal.wait_for("shell>")
        terminal.press(f"{command}\n")
        terminal.wait_for("Said.")
        terminal.send("more")
        terminal.wait_for("On and on.")
        terminal.type("my draft")
        terminal.wait_for("› my draft")
        for suspended in range(1, 3):
            terminal.press("\x1a" if suspended == 1 else "\x1b[122;5u")
            terminal.wait_for("Stopped")
            terminal.read(0.5)
            assert terminal.output.rfind(b"\x1b[?2004l") > terminal.output.rfind(b"\x1b[?2004h")
            assert terminal.output.rfind(b"\x1b[?25h") > terminal.output.rfind(b"\x1b[?25l")
            assert terminal.output.rfind(b"\x1b[<u") > terminal.output.rfind(b"\x1b[>1u")
            assert not any("my draft" in row for row in terminal.rows())
            terminal.press(f"echo in the shell $((40 + {suspended}))\n")
            terminal.wait_for(f"in the shell {40 + suspended}")
            terminal.press("fg\n")
            terminal.wait_until_shown("› my draft")
        terminal.wait_until_gone("Esc stops")
        terminal.press("\x1b[99;5u")
        terminal.wait_until_gone("my draft")
        terminal.press("\x04")
        terminal.wait_for("continue with: wieldy --resume")
        terminal.press("stty -a; exit\n")
        terminal.wait_for_exit()
        assert " icanon" in "".join(terminal.history())
        assert "-echo " not in "".join(terminal.history())
        assert terminal.output.count(b"\x1b[>1u") == terminal.output.count(b"\x1b[<u") == 3
        said = " ".join(terminal.history())
        assert said.count("On and on.") == 100
    finally:
        terminal.close()


def test_the_cursor_stands_at_the_caret_with_wide_characters(inline: Opener) -> None:
    terminal = inline()
    terminal.type("日本語")
    terminal.read(0.3)
    assert terminal.screen.cursor.x == 2 + 6
    terminal.press("\x1b[D")
    terminal.read(0.3)
    assert terminal.screen.cursor.x == 2 + 4


HOSTILE = [
    "\x1b]0;title\x07",
    "\x1b[2J",
    "\x1b[31m red",
    "\x1bc",
    "\x9b2J",
    "\x1b[?1049h",
    "\x1b]52;c;aGk=\x07",
    "\r overwritten",
    "\x08\x08\x08",
    "\u202e reversed",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_a_model_or_a_tool_prints_commands_the_terminal(inline: Opener, project: Path, text: str) -> None:
    (project / "hostile.txt").write_text(f"before {text} after\n")
    turns = [
        [
            {"text": f"Model: {text} end.\n\n```\n{text}\n```\n"},
            {"call": "Bash", "input": {"command": "cat hostile.txt"}},
        ],
        [{"call": f"No{text}Tool", "input": {"file_path": text}}],
        [{"text": "Over."}],
    ]
    terminal = inline(turns=turns)
    terminal.send("go")
    terminal.wait_for("Over.")
    terminal.wait_until_gone("Esc stops")
    assert text.encode() not in terminal.output
    assert b"\x1b]" not in terminal.output
    assert terminal.rows()[-1] == "  default · script.json"


def test_a_message_is_handed_in_after_the_running_tool(inline: Opener) -> None:
    turns = [[{"call": "Bash", "input": {"command": "sleep 2"}}], [{"text": "Heard."}]]
    terminal = inline(turns=turns)
    terminal.send("wait")
    terminal.wait_for("● Bash sleep 2")
    terminal.type("also this")
    terminal.press("\x13")
    terminal.wait_for("handed in also this")
    terminal.wait_for("Heard.")
    rows = terminal.history()
    assert rows.index("› also this") < rows.index("Heard.")


def test_a_resumed_session_shows_its_conversation(inline: Opener) -> None:
    first = inline(
        turns=[[{"call": "Bash", "input": {"command": "echo from the tool"}}], [{"text": "Some **answer**."}]]
    )
    first.send("my question")
    first.wait_for("Some answer.")
    first.press("\x04")
    assert first.wait_for_exit() == 0
    again = inline("--continue")
    rows = again.history()
    for expected in ("› my question", "✓ Bash echo from the tool", "  from the tool", "Some answer."):
        assert expected in rows


@pytest.mark.parametrize(("columns", "lines"), [(40, 10), (300, 80), (20, 5)])
def test_any_size_shows_the_question_and_leaves_no_rubbish(
    inline: Opener, project: Path, columns: int, lines: int
) -> None:
    command = "touch made && " + " && ".join(f"echo part {number}" for number in range(30))
    terminal = inline(
        turns=[[{"text": "Some words. " * 30}, {"call": "Bash", "input": {"command": command}}], [{"text": "Over."}]],
        columns=columns,
        lines=lines,
    )
    terminal.send("make it")
    terminal.wait_for("Run this")
    terminal.answer("1")
    terminal.wait_for("Over.")
    terminal.wait_until_gone("Run this")
    assert (project / "made").exists()
    assert not any("Run this" in row or "PgDn" in row for row in terminal.history())


def test_a_small_terminal_shows_the_draft_and_the_queue_beside_a_question(inline: Opener) -> None:
    command = "touch made && " + " && ".join(f"echo part {number}" for number in range(30))
    slow = [{"text": "Working."}, {"pause": 2}, {"call": "Bash", "input": {"command": command}}]
    terminal = inline(turns=[slow, [{"text": "Over."}], [{"text": "And over."}]], columns=40, lines=10)
    terminal.send("make it")
    terminal.wait_for("Working.")
    terminal.send("next message")
    terminal.wait_for("Run this")
    terminal.type("my draft")
    terminal.wait_for("my draft")
    rows = terminal.rows()
    assert any("Run this" in row for row in rows)
    assert "queued next message" in rows


def test_without_colors_nothing_is_styled(inline: Opener) -> None:
    terminal = inline(turns=[[{"text": "Some **bold** text."}]], env={"NO_COLOR": "1"})
    terminal.send("go")
    terminal.wait_for("Some bold text.")
    assert b"m" not in {
        part[-1:] for part in terminal.output.split(b"\x1b[")[1:] if part[:1].isdigit() and len(part) < 5
    }
    assert b"\x1b[1m" not in terminal.output


def test_the_event_loop_has_nothing_to_complain_about(inline: Opener, project: Path) -> None:
    """Its clock counts processor time: on a busy machine, everything takes long."""
    answer = "# Title\n\nSome `code`.\n\n```python\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    edit = {"file_path": "a.py", "old_string": "x = 1", "new_string": "x = 2"}
    turns = [
        [{"text": answer}, TOUCH],
        [{"call": "Read", "input": {"file_path": "a.py"}}, {"call": "Grep", "input": {"pattern": "x"}}],
        [{"call": "Edit", "input": edit}],
        [{"text": "Over."}],
        [{"call": "Bash", "input": {"command": "sleep 300"}}],
    ]
    terminal = inline(
        turns=turns,
        env={"PYTHONASYNCIODEBUG": "1", "PYTHONWARNINGS": "default"},
        program=[sys.executable, str(Path(__file__).with_name("processor_time_loop.py"))],
    )
    terminal.send("make it")
    terminal.wait_for("Run this command?")
    terminal.answer("1")
    terminal.wait_for("Change a.py?")
    terminal.answer("1")
    terminal.wait_for("Over.")
    terminal.wait_until_gone("Esc stops")
    terminal.send("/context")
    terminal.wait_for("your prompts")
    terminal.type("@a")
    terminal.wait_for("a.py")
    terminal.press("\x03")
    terminal.send("again")
    terminal.wait_for("● Bash sleep 300")
    terminal.press("\x1b")
    terminal.wait_for("■ interrupted")
    terminal.press("\x04")
    assert terminal.wait_for_exit() == 0
    for complaint in (b"Executing", b"never awaited", b"destroyed", b"never retrieved", b"Warning", b"Traceback"):
        assert complaint not in terminal.output


def test_what_a_library_writes_to_stderr_stands_above_the_input_line(inline: Opener, tmp_path: Path) -> None:
    writer = tmp_path / "writer.py"
    writer.write_text(
        "import threading, warnings\n"
        "threading.Timer(2, lambda: warnings.warn('from a library', UserWarning)).start()\n"
        "from wieldy.__main__ import program\n"
        "program()\n"
    )
    terminal = inline(program=[sys.executable, str(writer)])
    terminal.type("my draft")
    terminal.wait_for("from a library")
    terminal.read(0.5)
    rows = terminal.rows()
    assert rows[-2:] == ["› my draft", "  default · script.json"]
    assert any(row.endswith("UserWarning: from a library") for row in rows[:-2])


FAILING_DISPLAY = Path(__file__).with_name("failing_display.py")


@pytest.fixture
def failing(project: Path, environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[[str], InlineTerminal]]:
    opened: list[InlineTerminal] = []

    def start(fault: str) -> InlineTerminal:
        turns = [[{"call": "weather", "input": {"city": "Rome"}}], [{"text": "Said."}], [{"text": "More."}]]
        (tmp_path / "script.json").write_text(json.dumps({"turns": turns}))
        model = f"script:{tmp_path / 'script.json'}"
        terminal = InlineTerminal([model, fault], project, environment, program=[sys.executable, str(FAILING_DISPLAY)])
        opened.append(terminal)
        terminal.wait_for("· script")
        return terminal

    yield start
    for terminal in opened:
        terminal.close()


def test_a_tool_whose_texts_for_people_fail_is_shown_by_its_input_and_result(
    failing: Callable[[str], InlineTerminal],
) -> None:
    terminal = failing("texts")
    terminal.send("go")
    terminal.wait_for("Said.")
    assert "✓ weather city=Rome" in terminal.rows()
    assert "  Rome: sunny" in terminal.rows()


def test_a_block_that_cannot_be_drawn_is_named_and_the_session_goes_on(
    failing: Callable[[str], InlineTerminal],
) -> None:
    terminal = failing("block")
    terminal.send("go")
    terminal.wait_for("Said.")
    assert "this could not be shown: ValueError: broken rows" in terminal.rows()


def test_a_frame_that_cannot_be_drawn_leaves_a_sane_terminal_and_a_session_to_resume(
    failing: Callable[[str], InlineTerminal], inline: Opener
) -> None:
    terminal = failing("frame")
    terminal.send("go")
    assert terminal.wait_for_exit() == 1
    rows = terminal.history()
    [line] = [row for row in rows if row.startswith("continue with: wieldy --resume ")]
    assert "wieldy: the screen could not be drawn, so the session was closed (ValueError: broken" in "".join(rows)
    assert not any("Traceback" in row for row in rows)
    assert terminal.modes() == terminal.modes_before
    assert terminal.output.rfind(b"\x1b[?2004l") > terminal.output.rfind(b"\x1b[?2004h")
    assert terminal.output.rfind(b"\x1b[?25h") > terminal.output.rfind(b"\x1b[?25l")
    again = inline("--resume", line.split()[-1], turns=[[{"text": "Here again."}]])
    assert "› go" in again.history()
    again.send("and now?")
    again.wait_for("Here again.")


def test_the_menu_of_commands_does_not_vanish_between_two_keys(inline: Opener) -> None:
    terminal = inline()
    terminal.press("/")
    terminal.wait_for("in all")
    terminal.read(0.5)
    start = len(terminal.output)
    terminal.type("co")
    terminal.wait_until_gone("in all")
    terminal.wait_for("/compact")
    frames = terminal.output[start:].split(b"\x1b[?2026h")
    assert not any(b"/help" in frame for frame in frames)  # nothing was drawn again from the beginning
    status = [frame for frame in frames if b"script.json" in frame]
    assert len(status) <= 2, "the rows below the box moved more than once for a key"
    terminal.type("py")
    terminal.wait_until_gone("/compact")
    terminal.type("x")
    terminal.wait_until_gone("copy the last answer")


def test_the_menu_follows_what_is_deleted(inline: Opener) -> None:
    terminal = inline()
    terminal.type("/mod")
    terminal.wait_until_shown("show or change the model")
    terminal.press("\x7f\x7f\x7f")
    terminal.wait_until_shown("in all")
    terminal.type("mod")
    terminal.wait_until_gone("in all")
    terminal.press("\x17")  # Ctrl-W
    terminal.wait_until_gone("show or change the model")


def test_the_last_result_is_shown_whole_in_the_pager(inline: Opener, tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\ncat > {tmp_path}/paged\n")
    pager.chmod(0o755)
    turns = [[{"call": "Bash", "input": {"command": "seq 100"}}], [{"text": "Over."}]]
    terminal = inline(turns=turns, env={"PAGER": str(pager)})
    terminal.send("count")
    terminal.wait_for("Over.")
    terminal.wait_until_gone("Esc stops")
    terminal.press("\x0f")
    terminal.read(1.5)
    assert "\n77\n" in (tmp_path / "paged").read_text()
    terminal.type("still here")
    terminal.wait_for("› still here")


def test_the_draft_can_be_written_in_the_editor(inline: Opener, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nprintf 'from the editor' >> \"$1\"\n")
    editor.chmod(0o755)
    terminal = inline(env={"EDITOR": str(editor), "VISUAL": str(editor)})
    terminal.type("draft ")
    terminal.press("\x07")
    terminal.wait_for("draft from the editor")


def test_earlier_prompts_are_found_again(inline: Opener) -> None:
    terminal = inline(turns=[[{"text": "One."}], [{"text": "Two."}]])
    terminal.send("the first prompt")
    terminal.wait_for("One.")
    terminal.wait_until_gone("Esc stops")
    terminal.press("\x1b[A")
    terminal.read(0.5)
    assert "› the first prompt" in terminal.rows()[-3:]
    terminal.press("\x03")
    terminal.press("\x12")
    terminal.type("FIRST")
    terminal.wait_for("history search: FIRST")
    assert "› the first prompt" in terminal.rows()[-3:], "it is shown before it is taken"
    terminal.press("\x03")
    terminal.wait_until_gone("history search")
    assert "› the first prompt" not in terminal.rows()[-3:]
    terminal.press("\x12")
    terminal.type("first")
    terminal.wait_for("history search: first")
    terminal.press("\r")
    terminal.read(0.5)
    assert "› the first prompt" in terminal.rows()[-3:]


def test_a_terminal_that_goes_away_ends_the_session(inline: Opener) -> None:
    terminal = inline(turns=[[{"text": "On and on. " * 500}]], script={"chunk": 3, "delay": 0.02})
    terminal.send("go")
    terminal.wait_for("On and on.")
    terminal.hang_up()
    assert terminal.process.wait(20) != 0

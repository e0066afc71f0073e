"""`wieldy batch`: run many tasks, follow a run, report on it."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wieldy.cli.arguments import UsageError, amount, checked, command_parser, count, folder, mode, read_json
from wieldy.cli.signals import SignalHandler
from wieldy.core import console
from wieldy.core.console import print_error
from wieldy.core.errors import WieldyError
from wieldy.core.text import plural

if TYPE_CHECKING:
    from wieldy.faces.batch.driver import Driver, RunOptions, RunPlan
    from wieldy.faces.batch.report import RunReport
    from wieldy.faces.batch.store import ResultStore, Shard
    from wieldy.faces.batch.tasks import TaskDefaults

COMPLETE, INCOMPLETE, USAGE_ERROR = 0, 1, 2
SESSION_DESCRIPTORS, WORKER_DESCRIPTORS = 8, 60  # of a session that runs a command, and of a worker beside its sessions
BAR_SECONDS = 0.5
LINE_SECONDS = 60.0
WATCH_SECONDS = 1.0
IDLE_STATE_SECONDS, SILENT_SECONDS = 30.0, 120.0  # without news, after which a watched run counts as stopped

EXAMPLES = """examples:
  wieldy batch tasks.jsonl --out runs/first --model anthropic/claude-sonnet-5-5 --max-cost 50
  wieldy batch tasks.jsonl --out runs/first                      continues where it stopped
  wieldy batch tasks.jsonl --out runs/first --only infra         only what failed by infrastructure
  wieldy batch swebench.jsonl --repos clones --out runs/swe --mode bypassPermissions --time-each 30m
  wieldy batch tasks.jsonl --out /shared/run --shard 3/64        part 3 of 64: Slurm arrays, Kubernetes, CI
  wieldy batch tasks.jsonl --out s3://bucket/run --shard 3/64    the same without a shared folder
  wieldy batch watch runs/first                                  follow a run, from any machine
  wieldy batch report runs/first                                 a table, and report.html with plots

A task is one JSON object a line: {"id": "a", "prompt": "fix the test", "root": "project", "check": "pytest -q"}
exit codes: 0 every task has a result, 1 some have none yet, 2 usage, 130 interrupted (143 by SIGTERM, 129 by SIGHUP)"""


def main(command: str, argv: list[str]) -> int:
    if argv and argv[0] == "watch":
        return _watch(argv[1:])
    if argv and argv[0] == "report":
        return _report(argv[1:])
    from wieldy.faces.batch.tasks import TaskFileError

    options = _parser().parse_args(argv)
    try:
        return _run(options)
    except WieldyError as error:
        for line in str(error).splitlines():
            print_error(line)
        return USAGE_ERROR if isinstance(error, TaskFileError | UsageError) else INCOMPLETE


def _parser() -> argparse.ArgumentParser:
    from wieldy.faces.batch.isolation import ISOLATIONS
    from wieldy.faces.batch.rates import parse_rate
    from wieldy.faces.batch.tasks import parse_duration

    duration = checked(parse_duration)
    parser = command_parser(
        "wieldy batch", "Run many tasks. What is finished is never lost and never run again.", EXAMPLES
    )
    add = parser.add_argument
    add("tasks", metavar="TASKS.jsonl", help="one task a line; rows of SWE-bench are taken as they are")
    add(
        "--out", type=_location, required=True, metavar="DIR|URL", help="where results go; an existing run is continued"
    )
    add("--model", default="", metavar="PROVIDER/NAME", help="for tasks that name none (default: WIELDY_MODEL)")
    add(
        "--mode",
        "--permission-mode",
        type=mode,
        default="acceptEdits",
        metavar="MODE",
        help="permission mode for tasks that name none (default: %(default)s)",
    )
    add("--root", type=folder, default=None, metavar="DIR", help="the project, for tasks without a source")
    add("--check", default="", metavar="COMMAND", help="for tasks without one: exit code 0 means solved")
    add("--setup", default="", metavar="COMMAND", help="run in the copy before the session, for tasks without one")
    add("--settings", default="", metavar="FILE", help="settings for every task, as a file or as JSON")
    add("--base-url", default="", metavar="URL", help="the address of the model's API")
    add("--repos", type=folder, default=None, metavar="DIR", help="a folder of clones, searched before GitHub")
    add("--workers", type=count, default=8, metavar="N", help="sessions at the same time (default: %(default)s)")
    add("--processes", type=count, metavar="N", help="worker processes (default: one a core)")
    add(
        "--engine",
        type=_engine_name,
        default="local",
        metavar="ENGINE",
        help="local (the default), ray, or ray:ADDRESS",
    )
    add("--shard", type=_shard, default="1/1", metavar="I/N", help="do part I of N, counted from 1")
    add(
        "--attempts",
        type=count,
        default=1,
        metavar="K",
        help="independent attempts at each task (default: %(default)s)",
    )
    add(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="continue a run that is there already (default); --no-resume refuses to",
    )
    add("--only", action="append", default=[], metavar="WHAT", help="failed, infra, or an id; may be repeated")
    add(
        "--retries",
        type=int,
        default=2,
        metavar="N",
        help="after rate limits, overload, connections (default: %(default)s)",
    )
    add("--max-cost", type=amount, metavar="USD", help="nothing new starts when the run has cost this much")
    add("--max-cost-each", type=amount, metavar="USD", help="the most an attempt may cost")
    add("--max-turns", type=count, metavar="N", help="the most turns of an attempt")
    add("--time-each", type=duration, metavar="TIME", help="working time of an attempt: 90, 90s, 30m, 2h")
    add("--idle-each", type=duration, default="30m", metavar="TIME", help="without any event (default: %(default)s)")
    add("--check-time", type=duration, default="30m", metavar="TIME", help="of setup and check (default: %(default)s)")
    add(
        "--rate",
        type=checked(parse_rate),
        action="append",
        default=[],
        metavar="PROVIDER=N/min",
        help="requests to a provider at most",
    )
    add("--patience", type=duration, default="1h", metavar="TIME", help="wait for a rate limit (default: %(default)s)")
    add("--isolate", choices=ISOLATIONS, default="auto", help="how each attempt gets its copy (default: %(default)s)")
    add("--work", default="", metavar="DIR", help="where copies are made (default: ~/.cache/wieldy/batch)")
    add("--keep-copies", action="store_true", help="leave the copies where they are")
    add("--dry-run", action="store_true", help="check the tasks and say what would run")
    return parser


def _location(text: str) -> str:
    """A folder, or a URL that fsspec knows."""
    scheme, separator, path = text.partition("://")
    if not text.strip() or (separator and (not scheme or not path.strip("/"))):
        raise argparse.ArgumentTypeError(f"`{text}` is neither a folder nor a URL such as s3://bucket/folder")
    if separator and scheme in ("file", "local") and not path.startswith("/"):
        raise argparse.ArgumentTypeError(f"`{text}` has no absolute path: write {scheme}:///folder")
    return text.rstrip("/") if separator else text


def _engine_name(text: str) -> str:
    if text != "local" and text.partition(":")[0] != "ray":
        raise argparse.ArgumentTypeError(f"there is no engine `{text}`; there are local, ray, and ray:ADDRESS")
    return text


def _shard(text: str) -> Shard:
    from wieldy.faces.batch.store import Shard

    index, _, total = text.partition("/")
    if not (index.isdecimal() and total.isdecimal() and 1 <= int(index) <= int(total)):
        raise argparse.ArgumentTypeError(f"`{text}` is not a part such as 3/64, counted from 1")
    return Shard(int(index), int(total))


def _run(options: argparse.Namespace) -> int:
    from wieldy.faces.batch.driver import check_models, describe_run, make_plan, work_folder
    from wieldy.faces.batch.remote import is_url, local_path, open_location
    from wieldy.faces.batch.tasks import TaskFileError, digest, read_tasks

    file = read_tasks(options.tasks, _defaults(options))
    for warning in file.warnings:
        print_error(warning)
    if missing := next((task for task in file.tasks if not task.model), None):
        raise TaskFileError(f"the task {missing.id} names no model: give --model, or set WIELDY_MODEL")
    part: Shard = options.shard
    out = options.out if is_url(options.out) else os.path.realpath(local_path(options.out))
    work = work_folder(options.work, out, part)
    store = open_location(options.out, work / "spool", part)
    run_options = _run_options(options, work, out)
    if options.dry_run:
        plan = make_plan(file.tasks, store, run_options)
        check_models(plan, options.base_url)
        _print_plan(plan, dry=True)
        return COMPLETE
    if options.engine == "local":
        _check_descriptors(options)
    if not options.resume and any(store.results()):
        raise TaskFileError(f"--no-resume: {store.location} holds results of a run; give --out another place")
    store.open()
    try:
        plan = make_plan(file.tasks, store, run_options)
        check_models(plan, options.base_url)
        names = [task.id for task in file.tasks]
        store.write_run(
            describe_run(os.path.abspath(options.tasks), digest(names), run_options, {"engine": options.engine})
        )
        _print_plan(plan)
        with SignalHandler() as signals:
            return asyncio.run(_drive(plan, store, options, run_options, signals))
    finally:
        store.close()


def _defaults(options: argparse.Namespace) -> TaskDefaults:
    from wieldy.faces.batch.tasks import TaskDefaults, TaskFileError, TaskLimits, check_settings

    model = options.model or os.environ.get("WIELDY_MODEL", "")
    if model.startswith("script:"):
        model = f"script:{os.path.abspath(model.removeprefix('script:'))}"
    settings = read_json(options.settings, "settings") if options.settings else {}
    if problems := check_settings(settings):
        raise TaskFileError("\n".join(f"--settings: {problem}" for problem in problems))
    return TaskDefaults(
        model=model,
        mode=options.mode,
        root=options.root or "",
        check=options.check,
        setup=options.setup,
        settings=settings,
        limits=TaskLimits(options.max_turns, options.max_cost_each, options.time_each, options.idle_each),
        repos=options.repos or "",
    )


def _run_options(options: argparse.Namespace, work: Path, out: str) -> RunOptions:
    from wieldy.faces.batch.driver import RunOptions

    return RunOptions(
        workers=options.workers,
        samples=options.attempts,
        retries=max(options.retries, 0),
        only=tuple(options.only),
        max_cost=options.max_cost,
        isolate=options.isolate,
        work=str(work),
        base_url=options.base_url,
        keep_copies=options.keep_copies,
        command_seconds=options.check_time,
        patience=options.patience,
        exclude=tuple(os.path.realpath(path) for path in (out, options.work or work, options.tasks)),
    )


def _print_plan(plan: RunPlan, *, dry: bool = False) -> None:
    would = "would run" if dry else "to run"
    finished = sum(result.is_final for result in plan.finished)
    done = f", {finished} finished before" if finished else ""
    print_error(f"{len(plan.pending)} of {plural(plan.total, 'attempt')} {would}{done}")
    if plan.others:
        print_error(f"{plural(plan.others, 'result')} of other tasks, or of another configuration, stay there")


async def _drive(
    plan: RunPlan, store: ResultStore, options: argparse.Namespace, run_options: RunOptions, signals: SignalHandler
) -> int:
    from wieldy.core.threads import in_thread
    from wieldy.faces.batch.driver import Driver
    from wieldy.faces.batch.isolation import clean_work_folder
    from wieldy.faces.batch.store import PREDS_NAME, StoreError
    from wieldy.files.working_copies import remove_tree

    work = Path(run_options.work)
    for name in ("attempts", "commands"):  # left by a run that was killed
        await in_thread(remove_tree, work / name)
    engine = _engine(options, work, store)
    driver = Driver(plan, store, engine, run_options)
    display = asyncio.create_task(_show_progress(driver, store))
    code = COMPLETE
    try:
        await engine.start()
        driving = asyncio.create_task(driver.run())
        signals.call_on_signal(lambda reason: driving.cancel())
        await driving
    except asyncio.CancelledError:
        if signals.exit_code is None:
            raise
        code = signals.exit_code
    finally:
        display.cancel()
        await asyncio.wait((display,))
        await engine.aclose()
        is_complete = code == COMPLETE and driver.is_complete
        driver.state.over = True
        await store.aclose(driver.state.as_dict(), complete=is_complete)
        if is_complete and not run_options.keep_copies:
            await in_thread(clean_work_folder, work)
    code = _print_summary(driver, store, code)
    if signals.exit_code is None:
        try:
            await in_thread(store.write_predictions, driver.identities)
        except StoreError as error:
            print_error(f"{PREDS_NAME} is missing or old: {error}")
            code = code or INCOMPLETE
    return code


def _check_descriptors(options: argparse.Namespace) -> None:
    """Raise `TaskFileError` where the workers could not open the files that so many sessions need."""
    import resource

    from wieldy.faces.batch.tasks import TaskFileError

    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)  # a worker raises its own to that
    sessions = math.ceil(options.workers / _processes(options))
    needed = sessions * SESSION_DESCRIPTORS + WORKER_DESCRIPTORS
    if limit != resource.RLIM_INFINITY and needed > limit:
        raise TaskFileError(
            f"--workers {options.workers} needs {needed} open files in each of "
            f"{plural(_processes(options), 'process')}, and the limit is {limit}: raise it (`ulimit -n`), "
            "use more --processes, or fewer --workers"
        )


def _processes(options: argparse.Namespace) -> int:
    return int(min(options.processes or os.cpu_count() or 1, options.workers))


def _engine(options: argparse.Namespace, work: Path, store: ResultStore) -> Any:
    from wieldy.faces.batch.rates import RateLimiter
    from wieldy.faces.batch.workers import LocalEngine

    name, _, address = options.engine.partition(":")
    if name == "ray":
        from wieldy.faces.batch.ray_engine import RayEngine

        caps = dict(options.rate)
        return RayEngine(
            address, store.path.resolve(), options.work, caps, workers=options.workers, actors=options.processes
        )
    return LocalEngine(work, RateLimiter(dict(options.rate)), processes=_processes(options), logs=store.path / "logs")


async def _show_progress(driver: Driver, store: ResultStore) -> None:
    """Draw a bar on a terminal, or write a line a minute; and write the state for those who watch."""
    is_terminal = sys.stderr.isatty()
    last_line = time.monotonic()
    writing = asyncio.create_task(_write_states(driver, store))
    try:
        while True:
            now = time.monotonic()
            if is_terminal:
                _draw(driver.state.as_dict())
            elif now - last_line >= LINE_SECONDS:
                last_line = now
                _print_line(driver.state.as_dict())
            await asyncio.sleep(BAR_SECONDS)
    finally:
        writing.cancel()
        await asyncio.wait((writing,))
        if is_terminal:
            console.write_error(console.CARRIAGE_RETURN, console.ERASE_TO_LINE_END, end="")


async def _write_states(driver: Driver, store: ResultStore) -> None:
    from wieldy.core.threads import in_thread

    while True:
        await in_thread(store.write_progress, driver.state.as_dict())
        await asyncio.sleep(store.progress_seconds)


def _draw(state: dict[str, Any]) -> None:
    from wieldy.faces.batch.report import progress_line

    line = progress_line(state, width=shutil.get_terminal_size().columns - 1)
    console.write_error(console.CARRIAGE_RETURN, console.ERASE_TO_LINE_END, line, end="")


def _print_line(state: dict[str, Any]) -> None:
    from wieldy.faces.batch.report import progress_line

    console.write_error(progress_line(state, bar=False))


def _print_summary(driver: Driver, store: ResultStore, code: int) -> int:
    from wieldy.faces.batch.report import ERRORS_SHOWN

    state = driver.state
    _print_line(state.as_dict())
    for name, number in state.errors.most_common(ERRORS_SHOWN):
        print_error(f"{name} ({number}×), the last one: {state.error_details[name]}")
    if state.unpriced:
        print_error(f"the price of a model is unknown in {plural(state.unpriced, 'attempt')}: costs are lower bounds")
    if code:
        print_error("interrupted; the same command continues where it stopped")
        return code
    if state.stopping:
        print_error(f"stopped: {state.stopping}")
    open_endings = sum(state.endings[name] for name in ("infra", "crashed", "skipped"))
    if open_endings:
        words = "1 attempt has" if open_endings == 1 else f"{open_endings} attempts have"
        print_error(f"{words} no result yet; the same command tries again")
    console.write(store.location)
    return INCOMPLETE if open_endings else COMPLETE


def _watch(argv: list[str]) -> int:
    from wieldy.faces.batch.remote import find_run, is_url
    from wieldy.faces.batch.report import current_states, merge_states

    example = "examples:\n  wieldy batch watch runs/first\n  wieldy batch watch s3://bucket/run"
    about = "Follow a run until it is over. It may run on another machine."
    parser = command_parser("wieldy batch watch", about, example)
    parser.add_argument("folder", type=_location, metavar="DIR|URL", help="what was given to --out")
    parser.add_argument("--once", action="store_true", help="say how it stands, and end")
    options = parser.parse_args(argv)
    run = find_run(options.folder)
    run.read_run()
    pause = WATCH_SECONDS * (5 if is_url(options.folder) else 1)
    is_terminal = sys.stderr.isatty()
    next_line = time.monotonic()
    while True:
        states, missing = current_states(run.read_progress())
        if not states:
            print_error(f"{options.folder} has no progress yet")
            return INCOMPLETE
        state = merge_states(states)
        is_over = state["done"] >= state["total"] and not missing
        silence = time.time() - state["at"]
        has_stopped = state["over"] and not missing
        has_stopped = has_stopped or silence > (IDLE_STATE_SECONDS if not state["running"] else SILENT_SECONDS)
        if not (options.once or is_over or has_stopped):
            if is_terminal:
                _draw(state)
            elif time.monotonic() >= next_line:
                next_line += LINE_SECONDS
                _print_line(state)
            time.sleep(pause)
            continue
        if is_terminal and not options.once:
            console.write_error(console.CARRIAGE_RETURN, console.ERASE_TO_LINE_END, end="")
        _print_line(state)
        if missing:
            print_error(f"not begun: {missing} of {missing + len(states)} shards")
        if is_over or options.once:
            return COMPLETE
        print_error("no process works on this run any more; `wieldy batch` with the same words continues it")
        return INCOMPLETE


def _report(argv: list[str]) -> int:
    from wieldy.faces.batch.remote import find_run
    from wieldy.faces.batch.report import load_report, report_lines, write_html

    about = (
        "Print the results of a run, and write report.html with plots beside them. The run may still be in progress."
    )
    parser = command_parser("wieldy batch report", about, "example:\n  wieldy batch report runs/first")
    parser.add_argument("folder", type=_location, metavar="DIR|URL", help="what was given to --out")
    parser.add_argument("--html", default="", metavar="FILE", help="write the page there instead")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON instead; no page is written")
    options = parser.parse_args(argv)
    stored = find_run(options.folder)
    report = load_report(stored)
    if not report.results:
        print_error(f"{options.folder} has no results yet")
        return INCOMPLETE
    if options.json:
        console.write_json(_report_numbers(report))
        return COMPLETE
    for line in report_lines(report):
        console.write(line)
    console.write("")
    console.write(write_html(report, stored, options.html))
    return COMPLETE


def _report_numbers(report: RunReport) -> dict[str, Any]:
    return {
        "attempts": len(report.results),
        "solved_share": report.solved_share,
        "cost": round(report.spent, 6),
        "models": report.models,
        "endings": {row.ending: row.attempts for row in report.rows},
        "tools": dict(report.tools),
        "errors": dict(report.errors),
        "tags": {name: {"attempts": count, "solved": solved} for name, count, solved in report.tags},
    }

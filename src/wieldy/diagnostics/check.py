"""One content before and after, through every checker of its language, as far as a deadline allows."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping

from wieldy.core.record import record
from wieldy.core.threads import in_thread
from wieldy.diagnostics.checkers import Checker, Subject, checkers_for
from wieldy.diagnostics.problem import Problem, new_problems
from wieldy.diagnostics.program import output_of


@record
class Edited:
    """A file before and after. `cache` is a folder where checkers may keep what makes them faster the next time."""

    path: str
    before: bytes
    after: bytes
    root: str
    cache: str
    env: Mapping[str, str]

    async def introduced(self, seconds: float) -> list[Problem]:
        """The errors that came in. A checker that takes longer than `seconds` is not heard: what it would have said
        cannot be told from what was there already."""
        found = checkers_for(self.path, self.env)
        if not found:
            return []
        folder = await in_thread(tempfile.mkdtemp, prefix="wieldy-check-")
        try:
            heard = await asyncio.gather(*(self._new(checker, program, folder, seconds) for checker, program in found))
        finally:
            await in_thread(shutil.rmtree, folder, ignore_errors=True)
        return sorted((problem for problems in heard for problem in problems), key=lambda problem: problem.line)

    async def _new(self, checker: Checker, program: str, folder: str, seconds: float) -> list[Problem]:
        try:
            async with asyncio.timeout(seconds):
                now = await self._problems(checker, program, self.after, folder)
                if not now or not self.before:
                    return now
                return new_problems(await self._problems(checker, program, self.before, folder), now)
        except TimeoutError:
            return []

    async def _problems(self, checker: Checker, program: str, content: bytes, folder: str) -> list[Problem]:
        subject = await in_thread(self._laid_out, content, folder)
        arguments = await in_thread(checker.arguments, subject)
        stdin = content if checker.reads_stdin else b""
        output = await output_of((program, *arguments), stdin=stdin, cwd=self.root, env=self.env)
        return await in_thread(lambda: list(checker.parse(output, subject))) if output else []

    def _laid_out(self, content: bytes, folder: str) -> Subject:
        """A copy of the content under the file's own name, in a folder of its own."""
        scratch = tempfile.mkdtemp(dir=folder)
        copy = os.path.join(scratch, os.path.basename(self.path))
        with open(copy, "wb") as file:
            file.write(content)
        return Subject(self.path, self.root, copy, scratch, self.cache)

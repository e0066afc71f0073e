"""`git`: which subcommand with which options only looks, and which writes into the repository."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache

from msgspec import Struct

from wieldy.shell.policy.programs.options import Parsed, Table, names, read, table
from wieldy.shell.policy.programs.tables import Call, Judgement, unknown
from wieldy.shell.policy.words import Word, plain

_RUNS = re.compile(
    r"(alias|pager)\..+|core\.(hookspath|fsmonitor|sshcommand|pager|editor|askpass|gitproxy|alternaterefscommand)"
    r"|sequence\.editor|diff\.external|diff\..+\.(command|textconv)|merge\..+\.driver|filter\..+\.(clean|smudge|process)"
    r"|(.+\.)?(cmd|helper|program|command|uploadpack|receivepack)|interactive\.difffilter|uploadpack\.packobjectshook"
    r"|submodule\..+\.update|include(if\..+)?\.path|init\.templatedir|protocol\.ext\.allow|sendemail\..*(server|cmd)",
    re.IGNORECASE,
)
# Programs that show or edit what they are given, and values that name no program.
_QUIET_VALUES = names("cat less more vi vim nano true false store cache manager osxkeychain checkout merge none")
_FILE_OPTIONS = ("-f", "--file")


def running(args: tuple[Word, ...], folder: Word | None, home: str) -> Judgement | None:
    """The judgement of a `git config` that sets what git will run; None for any other."""
    words, file = _operands(args, folder, home)
    at = next((at for at, word in enumerate(words) if "." in word.prefix), len(words))
    key, value = (*words[at : at + 2], None, None)[:2]
    if key is None or value is None or not _RUNS.fullmatch(key.prefix) or _is_quiet(key, value):
        return None
    return Judgement(writes=(file,), known=False, changes=True, why=f"`{key.source}` says what git runs")


def _is_quiet(key: Word, value: Word) -> bool:
    if key.prefix.lower().startswith("alias."):
        return value.static and not value.text.lstrip().startswith("!")
    return value.static and value.text in _QUIET_VALUES


def _operands(args: tuple[Word, ...], folder: Word | None, home: str) -> tuple[list[Word], Word]:
    """The words that are no options, and the file that is written."""
    file = plain(f"{folder.text}/.git/config" if folder and folder.static else ".git/config")
    words: list[Word] = []
    rest = iter(args)
    for word in rest:
        name, equals, value = word.prefix.partition("=")
        if name in _FILE_OPTIONS:
            file = plain(value) if equals else next(rest, file)
        elif name == "--global":
            file = plain(f"{home}/.gitconfig")
        elif name == "--system":
            file = plain("/etc/gitconfig")
        elif words or not name.startswith("-"):
            words.append(word)
    return words, file


_ALWAYS = names("grep range-diff")
_UNLESS_NAMES = names("diff show whatchanged diff-index diff-files")
_WITH_PATCH = names("log reflog stash rev-list diff-tree")
_NAMES = names(
    "--name-only --name-status --stat --numstat --shortstat --dirstat --summary --compact-summary --raw --quiet --no-patch -s"
)
_PATCH = names(
    "--patch --unified --patch-with-raw --patch-with-stat --cc --diff-merges --remerge-diff --dd --word-diff "
    "--word-diff-regex --color-words --function-context --binary --text --check"
)
_SHORT_PATCH = re.compile(r"-[A-Za-z]*[puUcmLW]")
_OBJECT_NAMED = re.compile(r"[^:]*:.+")
_ABOUT_OBJECTS = names("-t -s -e --batch-check")


def shows_content(command: str, args: tuple[Word, ...]) -> bool:
    """Whether the content of files may be shown, and not only their names."""
    flags = {word.text.partition("=")[0] for word in _before_paths(args) if word.prefix.startswith("-")}
    patch = bool(flags & _PATCH) or any(map(_SHORT_PATCH.match, (flag for flag in flags if flag[:2] != "--")))
    if command in _ALWAYS or (command == "cat-file" and not flags & _ABOUT_OBJECTS):
        return True
    return (command in _UNLESS_NAMES and (patch or not flags & _NAMES)) or (command in _WITH_PATCH and patch)


def names_files(command: str, args: tuple[Word, ...]) -> bool:
    """Whether what is shown is told file by file: paths behind `--`, or nothing but `revision:path`."""
    front = _before_paths(args)
    behind = args[len(front) + 1 :]
    if behind:
        # A pathspec may begin with magic, which can mean everything.
        return all(word.static and word.text and not word.text.startswith(":") for word in behind)
    operands = [word for word in front if not word.prefix.startswith("-")]
    return (
        command in ("show", "cat-file")
        and bool(operands)
        and all(word.static and _OBJECT_NAMED.fullmatch(word.text) for word in operands)
    )


def _before_paths(args: tuple[Word, ...]) -> tuple[Word, ...]:
    end = next((index for index, word in enumerate(args) if word.static and word.text == "--"), len(args))
    return args[:end]


_DIFF = (
    "-p -u -s -U: -z -a -b -w -B? -M? -C? -D -l: -S: -G: -O:r -R -W -X? --patch --no-patch --unified= --raw "
    "--patch-with-raw --patch-with-stat --indent-heuristic --no-indent-heuristic --minimal --patience --histogram "
    "--anchored= --diff-algorithm= --stat=? --stat-width= --stat-name-width= --stat-count= --compact-summary "
    "--numstat --shortstat --dirstat=? --cumulative --summary --name-only --name-status --submodule=? --color=? "
    "--no-color --color-moved=? --no-color-moved --color-moved-ws= --word-diff=? --word-diff-regex= "
    "--color-words=? --no-renames --rename-empty --no-rename-empty --check --ws-error-highlight= --full-index "
    "--binary --abbrev=? --no-abbrev --break-rewrites=? --find-renames=? --find-copies=? --find-copies-harder "
    "--irreversible-delete --diff-filter= --pickaxe-all --pickaxe-regex --skip-to= --rotate-to= --relative=? "
    "--no-relative --text --ignore-cr-at-eol --ignore-space-at-eol --ignore-space-change --ignore-all-space "
    "--ignore-blank-lines --ignore-matching-lines= -I: --inter-hunk-context= --function-context --exit-code "
    "--quiet --no-ext-diff --no-textconv --ignore-submodules=? --src-prefix= --dst-prefix= --no-prefix "
    "--default-prefix --line-prefix= --ita-invisible-in-index --cc --combined-all-paths -c -m -t --diff-merges= "
    "--no-diff-merges --remerge-diff --dd"
)
_REVISIONS = (
    "-n: -# -i -E -F -P -g -r --max-count= --skip= --since= --after= --until= --before= --author= --committer= "
    "--grep-reflog= --grep= --all-match --invert-grep --regexp-ignore-case --basic-regexp --extended-regexp "
    "--fixed-strings --perl-regexp --remove-empty --merges --no-merges --min-parents= --max-parents= "
    "--no-min-parents --no-max-parents --first-parent --exclude-first-parent-only --not --all --branches=? "
    "--tags=? --remotes=? --glob= --exclude= --exclude-hidden= --reflog --alternate-refs --single-worktree "
    "--ignore-missing --boundary --simplify-by-decoration --full-history --dense --sparse --simplify-merges "
    "--ancestry-path=? --show-pulls --cherry-mark --cherry-pick --left-only --right-only --cherry --walk-reflogs "
    "--merge --date-order --author-date-order --topo-order --reverse --no-walk=? --do-walk --pretty=? --format= "
    "--abbrev-commit --no-abbrev-commit --oneline --encoding= --expand-tabs=? --no-expand-tabs --notes=? "
    "--no-notes --relative-date --date= --parents --children --left-right --graph --no-graph "
    "--show-linear-break=? --since-as-filter= --no-merge-base --count --timestamp --objects --bisect --bisect-all "
    "--use-bitmap-index --header"
)
_LOG = (
    f"{_DIFF} {_REVISIONS} -L: --follow --no-follow --decorate=? --no-decorate --decorate-refs= --decorate-refs-exclude= "
    "--source --use-mailmap --no-use-mailmap --mailmap --no-mailmap --full-diff --log-size --clear-decorations "
    "--no-show-signature"
)
READING: Mapping[str, str] = {
    "status": (
        "-s -b -v -u? -z -M --short --branch --show-stash --porcelain=? --long --verbose --untracked-files=? "
        "--ignore-submodules=? --ignored=? --column=? --no-column --ahead-behind --no-ahead-behind --renames "
        "--no-renames --find-renames=?"
    ),
    "log": _LOG,
    "whatchanged": _LOG,
    "show": _LOG,
    "rev-list": f"{_DIFF} {_REVISIONS}",
    "diff": f"{_DIFF} --cached --staged --merge-base --no-index --base --ours --theirs",
    "diff-tree": f"{_DIFF} -r -v --stdin --root --no-commit-id --always --pretty=? --format=",
    "diff-index": f"{_DIFF} --cached --merge-base",
    "diff-files": f"{_DIFF} -q --base --ours --theirs",
    "shortlog": "-n -s -e -c -w? --numbered --summary --email --format= --group= --committer --since= --until= "
    "--no-merges --all",
    "rev-parse": (
        "-q --all --branches=? --tags=? --remotes=? --glob= --exclude= --verify --quiet --short=? --symbolic "
        "--symbolic-full-name --abbrev-ref=? --default= --revs-only --no-revs --flags --no-flags "
        "--is-inside-git-dir --is-inside-work-tree --is-bare-repository --is-shallow-repository --show-cdup "
        "--show-prefix --show-toplevel --show-superproject-working-tree --git-dir --absolute-git-dir "
        "--git-common-dir --git-path= --show-object-format=? --path-format= --since= --until= --not "
        "--disambiguate= --local-env-vars"
    ),
    "ls-files": (
        "-c -d -m -o -i -s -k -u -t -v -f -z -x: -X:r --cached --deleted --modified --others --ignored --stage "
        "--killed --unmerged --directory --no-empty-directory --exclude= --exclude-from=r "
        "--exclude-per-directory= --exclude-standard --error-unmatch --with-tree= --full-name "
        "--recurse-submodules --abbrev=? --eol --deduplicate --format= --debug --resolve-undo"
    ),
    "ls-tree": "-d -r -t -l -z --name-only --name-status --object-only --long --abbrev=? --full-name --full-tree "
    "--format=",
    "blame": (
        "-b -l -t -f -n -s -e -w -p -c -M? -C? -L: --root --show-stats --reverse --first-parent --porcelain "
        "--line-porcelain --incremental --encoding= --date= --color-lines --color-by-age --abbrev=? --show-name "
        "--show-number --show-email --ignore-rev= --no-progress --since="
    ),
    "annotate": "-l -t -f -n -s -e -w -L: --porcelain",
    "describe": (
        "--all --tags --contains --abbrev=? --candidates= --exact-match --debug --long --match= --exclude= "
        "--always --first-parent --dirty=? --broken=?"
    ),
    "merge-base": "-a --all --octopus --independent --is-ancestor --fork-point",
    "name-rev": "--tags --refs= --exclude= --all --name-only --no-undefined --always",
    "cat-file": "-t -s -e -p --batch-check=? --batch=? --batch-all-objects --allow-unknown-type --unordered "
    "--follow-symlinks -z",
    "for-each-ref": "--count= --sort= --format= --points-at= --merged=? --no-merged=? --contains=? "
    "--no-contains=? --ignore-case --exclude=",
    "show-ref": "-d -s -q --head --heads --tags --branches --dereference --hash=? --verify --quiet --abbrev=? --exists",
    "symbolic-ref": "-q --quiet --short",
    "show-branch": "-a -r --all --remotes --current --sha1-name --no-name --topics --list --independent --more=?",
    "count-objects": "-v -H --verbose --human-readable",
    "check-ignore": "-q -v -n -z --quiet --verbose --non-matching --no-index",
    "check-attr": "-a -z --all --cached --source=",
    "check-ref-format": "--branch --allow-onelevel --normalize --refspec-pattern",
    "grep": (
        "-a -i -w -v -h -H -E -G -F -P -n -l -L -z -o -c -p -W -q -e: -f:r -m: -A: -B: -C: -# --cached "
        "--untracked --no-index --text --no-exclude-standard --exclude-standard --ignore-case --word-regexp "
        "--invert-match --full-name --extended-regexp --basic-regexp --perl-regexp --fixed-strings --line-number "
        "--column --files-with-matches --name-only --files-without-match --null --only-matching --count --color=? "
        "--no-color --break --heading --show-function --after-context= --before-context= --context= "
        "--function-context --threads= --and --or --not --all-match --quiet --max-depth= --max-count= "
        "--no-textconv --recursive --no-recursive"
    ),
    "cherry": "-v --abbrev=?",
    "range-diff": f"{_DIFF} --creation-factor= --no-dual-color --left-only --right-only",
    "var": "-l",
}
_REFS = (
    "-l -i -n? -v -q -a -r --list --verbose --quiet --all --remotes --contains=? --no-contains=? --merged=? "
    "--no-merged=? --points-at= --sort= --format= --color=? --no-color --column=? --no-column --abbrev=? "
    "--no-abbrev --ignore-case --omit-empty"
)
_TAGS = (
    "-l -i -n? --list --contains=? --no-contains=? --merged=? --no-merged=? --points-at= --sort= --format= "
    "--color=? --column=? --no-column --ignore-case --omit-empty"
)
LISTING: Mapping[str, dict[str, str]] = {
    "branch": {
        "*": f"{_REFS} --show-current",
        "needs": "--list --contains --no-contains --merged --no-merged --points-at --show-current",
    },
    "tag": {"*": _TAGS, "needs": "-l --list -n --contains --no-contains --merged --no-merged --points-at"},
    "remote": {"": "-v --verbose", "get-url": "--push --all"},
    "stash": {"list": _LOG, "show": f"{_DIFF} --include-untracked --only-untracked"},
    "worktree": {"list": "-v -z --verbose --porcelain"},
    "notes": {"": "", "list": "", "show": ""},
    "submodule": {},
    "bisect": {"log": ""},
    "reflog": {"": _LOG, "show": _LOG},
    "bundle": {},
    "sparse-checkout": {"list": ""},
    "lfs": {},
}
CONFIG_READS = (
    "-l -z --get --get-all --get-regexp --get-urlmatch --list --global --system --local --worktree --null "
    "--name-only --show-origin --show-scope --includes --no-includes --type= --bool --int --bool-or-int --path "
    "--default= --all --file=r -f:r"
)
# Only what runs no hooks and writes nowhere but into the work tree and the repository.
WRITING: Mapping[str, str] = {
    "add": "-A -u -v -n -f -N --all --update --verbose --dry-run --force --intent-to-add --no-all --renormalize",
    "mv": "-f -k -n -v --force --dry-run --verbose",
    "rm": "-f -r -n -q --cached --force --quiet --dry-run --ignore-unmatch",
    "restore": "-S -W -s: -q --staged --worktree --source= --quiet",
    "reset": "-q --quiet --soft --mixed --hard --keep --merge",
}


_QUIET_GLOBALS = names(
    "--no-pager -P --no-replace-objects --no-optional-locks --literal-pathspecs --glob-pathspecs "
    "--noglob-pathspecs --icase-pathspecs --no-lazy-fetch"
)


class GitCall(Struct, frozen=True):
    """A subcommand, its arguments, and the folder given with `-C`."""

    command: str
    args: tuple[Word, ...]
    folder: Word | None
    problem: str = ""


def split(args: tuple[Word, ...]) -> GitCall:
    """Read past the global options; `-c`, `--paginate`, `--exec-path` and the like can run programs and are a problem."""
    folder: Word | None = None
    index, problem = 0, ""
    while index < len(args):
        word = args[index]
        if not word.static:
            return GitCall("", (), folder, f"`{word.source}` in place of a git subcommand")
        if word.text == "-C" and index + 1 < len(args):
            folder = args[index + 1]
            index += 2
        elif word.text in _QUIET_GLOBALS:
            index += 1
        elif word.text in ("-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--super-prefix"):
            problem = f"`git {word.text}` changes what git runs or where it looks"
            index += 2
        elif word.text.startswith("-") and word.text not in ("--version", "--help", "-h", "-v"):
            problem = f"`git {word.text}` before the subcommand is not known to be harmless"
            index += 1
        else:
            return GitCall(word.text, args[index + 1 :], folder, problem)
    return GitCall("", (), folder, problem)


def judge(call: Call) -> Judgement:
    """Judge one call of git."""
    found = split(call.args)
    runs = running(found.args, found.folder, call.scene.home) if found.command == "config" else None
    if runs is not None:
        return runs
    if found.problem:
        return unknown(found.problem)
    here = found.folder or plain(".")
    if not found.command or found.command in ("--version", "version", "-v"):
        return Judgement() if not found.args else unknown("`git version` with arguments")
    if found.command in WRITING:
        if problem := read(found.args, _table(WRITING[found.command])).problem:
            return unknown(problem)
        return Judgement(
            reads=(here,), writes=(here,), changes=True, why=f"`git {found.command}` writes to the repository"
        )
    judged = _reading(found)
    if not judged.known:
        return judged
    reads = [place for word in judged.reads for place in _places(word, found.folder, call.scene.root)]
    sweeps = shows_content(found.command, found.args)
    spared = (here,) if sweeps and names_files(found.command, found.args) else ()
    return Judgement(reads=(here, *reads), sweeps=sweeps, spared=spared)


def _reading(found: GitCall) -> Judgement:
    if found.command in READING:
        parsed = read(found.args, _table(READING[found.command]))
        return _with_formats(found.command, parsed)
    if found.command in LISTING:
        return _listing(found)
    if found.command == "config":
        return _config(found)
    return unknown(f"`git {found.command}` is not known to be read-only")


@cache
def _table(spec: str) -> Table:
    return table(spec, exact=True)


def _with_formats(command: str, parsed: Parsed) -> Judgement:
    if parsed.problem:
        return unknown(parsed.problem)
    for name in ("--format", "--pretty"):
        for value in parsed.found.get(name, []):
            # %G… asks the configured signature program.
            if value is not None and (not value.static or "%G" in value.text or "signature" in value.text):
                return unknown(f"`git {command} {name}` with a format that can run a program")
    if any(word.kind in ("multiple", "single") for word in parsed.operands):
        return unknown("an argument that cannot be told")
    if command == "symbolic-ref" and len(parsed.operands) > 1:
        return unknown("`git symbolic-ref` with two names writes")
    return Judgement(reads=(*parsed.reads, *parsed.operands))


def _places(word: Word, folder: Word | None, root: str) -> list[Word]:
    """What an operand may name: a file here or in the folder given, and for `rev:path` one of the repository's top, too."""
    if not word.static:
        return [word]
    names = [word.text, *([word.text.partition(":")[2]] if ":" in word.text[:-1] else [])]
    found = [plain(os.path.join(folder.text, name)) if folder else plain(name) for name in names]
    return [*found, *(plain(os.path.join(root, name)) for name in names[1:])]


def _listing(found: GitCall) -> Judgement:
    """Commands that list or write, depending on the word or the options that follow."""
    rule = LISTING[found.command]
    args = found.args
    word = args[0].text if args and args[0].static and not args[0].text.startswith("-") else ""
    spec = rule.get(word)
    if spec is None:
        return _plain_listing(found, rule)
    parsed = read(args[1:] if word else args, _table(spec))
    if not word and parsed.operands:
        # Behind an option the word may still be one that writes, as in `git remote -v update`.
        return unknown(f"`git {found.command}` with `{parsed.operands[0].source}` behind its options")
    return _with_formats(found.command, parsed)


def _plain_listing(found: GitCall, rule: dict[str, str]) -> Judgement:
    spec = rule.get("*")
    if spec is None:
        return unknown(
            f"`git {found.command} {found.args[0].source if found.args else ''}` is not known to be read-only"
        )
    parsed = read(found.args, _table(spec))
    judged = _with_formats(found.command, parsed)
    listing = parsed.has(*rule["needs"].split()) or not parsed.operands
    return judged if listing else unknown(f"`git {found.command}` with a name creates it")


def _config(found: GitCall) -> Judgement:
    parsed = read(found.args, _table(CONFIG_READS))
    if parsed.problem:
        return unknown(parsed.problem)
    word = parsed.operands[0].text if parsed.operands and parsed.operands[0].static else ""
    asks = parsed.has("--get", "--get-all", "--get-regexp", "--list", "-l", "--get-urlmatch")
    asks = (
        asks or (word in ("get", "list") and len(parsed.operands) <= 2) or (len(parsed.operands) == 1 and "." in word)
    )
    if not asks:
        return unknown("`git config` that is not a question writes")
    if any(not operand.static for operand in parsed.operands):
        return unknown("an argument that cannot be told")
    return Judgement(reads=tuple(parsed.reads))

"""`git`: which subcommands with which options only read, and which write into the repository."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from wieldy.shell.effects.command_part import CommandPart
from wieldy.shell.effects.programs.spec import (
    CallEffects,
    ParsedArgs,
    ProgramCall,
    UnknownArguments,
    attached_value,
    option_table,
    parse_args,
    unknown,
    word_set,
)
from wieldy.shell.effects.words import Word, literal

_DIFF = (
    "-p -u -s -U: -z -a -b -w -B? -M? -C? -D -l: -S: -G: -O:r -R -W -X? --patch --no-patch --unified= --raw "
    "--patch-with-raw --patch-with-stat --indent-heuristic --no-indent-heuristic --minimal --patience --histogram "
    "--anchored= --diff-algorithm= --stat=? --stat-width= --stat-name-width= --stat-count= --compact-summary "
    "--numstat --shortstat --dirstat=? --cumulative --summary --name-only --name-status --color=? "
    "--no-color --color-moved=? --no-color-moved --color-moved-ws= --word-diff=? --word-diff-regex= --color-words=? "
    "--no-renames --rename-empty --no-rename-empty --check --ws-error-highlight= --full-index --binary --abbrev=? "
    "--no-abbrev --break-rewrites=? --find-renames=? --find-copies=? --find-copies-harder --irreversible-delete "
    "--diff-filter= --pickaxe-all --pickaxe-regex --skip-to= --rotate-to= --relative=? --no-relative --text "
    "--ignore-cr-at-eol --ignore-space-at-eol --ignore-space-change --ignore-all-space --ignore-blank-lines "
    "--ignore-matching-lines= -I: --inter-hunk-context= --function-context --exit-code --quiet --no-ext-diff "
    "--no-textconv --ignore-submodules=? --src-prefix= --dst-prefix= --no-prefix --default-prefix --line-prefix= "
    "--ita-invisible-in-index --cc --combined-all-paths -c -m -t --diff-merges= --no-diff-merges --dd"
)
_REVISIONS = (
    "-n: -# -i -E -F -P -g -r --max-count= --skip= --since= --after= --until= --before= --author= --committer= "
    "--grep-reflog= --grep= --all-match --invert-grep --regexp-ignore-case --basic-regexp --extended-regexp "
    "--fixed-strings --perl-regexp --remove-empty --merges --no-merges --min-parents= --max-parents= --no-min-parents "
    "--no-max-parents --first-parent --exclude-first-parent-only --not --all --branches=? --tags=? --remotes=? "
    "--glob= --exclude= --exclude-hidden= --reflog --alternate-refs --single-worktree --ignore-missing --boundary "
    "--simplify-by-decoration --full-history --dense --sparse --simplify-merges --ancestry-path=? --show-pulls "
    "--cherry-mark --cherry-pick --left-only --right-only --cherry --walk-reflogs --merge --date-order "
    "--author-date-order --topo-order --reverse --no-walk=? --do-walk --pretty=? --format= --abbrev-commit "
    "--no-abbrev-commit --oneline --encoding= --expand-tabs=? --no-expand-tabs --notes=? --no-notes --relative-date "
    "--date= --parents --children --left-right --graph --no-graph --show-linear-break=? --since-as-filter= "
    "--no-merge-base --count --timestamp --objects --bisect --bisect-all --use-bitmap-index --header"
)
_LOG = (
    f"{_DIFF} {_REVISIONS} -L: --follow --no-follow --decorate=? --no-decorate --decorate-refs= --decorate-refs-exclude= "
    "--source --use-mailmap --no-use-mailmap --mailmap --no-mailmap --full-diff --log-size --clear-decorations "
    "--no-show-signature"
)
READING_COMMANDS: Mapping[str, str] = {
    "status": (
        "-s -b -v -u? -z -M --short --branch --show-stash --porcelain=? --long --verbose --untracked-files=? "
        "--ignore-submodules=? --ignored=? --column=? --no-column --ahead-behind --no-ahead-behind --renames "
        "--no-renames --find-renames=?"
    ),
    "log": _LOG,
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
        "--symbolic-full-name --abbrev-ref=? --default= --revs-only --no-revs --flags --no-flags --is-inside-git-dir "
        "--is-inside-work-tree --is-bare-repository --is-shallow-repository --show-cdup --show-prefix --show-toplevel "
        "--show-superproject-working-tree --git-dir --absolute-git-dir --git-common-dir --git-path= "
        "--show-object-format=? --path-format= --since= --until= --not --disambiguate= --local-env-vars"
    ),
    "ls-files": (
        "-c -d -m -o -i -s -k -u -t -v -f -z -x: -X:r --cached --deleted --modified --others --ignored --stage "
        "--killed --unmerged --directory --no-empty-directory --exclude= --exclude-from=r --exclude-per-directory= "
        "--exclude-standard --error-unmatch --with-tree= --full-name --abbrev=? --eol "
        "--deduplicate --format= --debug --resolve-undo"
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
        "-a -i -w -v -h -H -E -G -F -P -n -l -L -z -o -c -p -W -q -e: -f:r -m: -A: -B: -C: -# --cached --untracked "
        "--no-index --text --no-exclude-standard --exclude-standard --ignore-case --word-regexp --invert-match "
        "--full-name --extended-regexp --basic-regexp --perl-regexp --fixed-strings --line-number --column "
        "--files-with-matches --name-only --files-without-match --null --only-matching --count --color=? --no-color "
        "--break --heading --show-function --after-context= --before-context= --context= --function-context "
        "--threads= --and --or --not --all-match --quiet --max-depth= --max-count= --no-textconv --recursive "
        "--no-recursive"
    ),
    "cherry": "-v --abbrev=?",
    "range-diff": f"{_DIFF} --creation-factor= --no-dual-color --left-only --right-only",
    "var": "-l",
    "fsck": "-v --verbose --full --strict --unreachable --dangling --no-dangling --root --tags --cache --no-reflogs "
    "--connectivity-only --name-objects --no-progress",
    "verify-pack": "-v -s --verbose --stat-only",
}
_REFS = (
    "-l -i -n? -v -q -a -r --list --verbose --quiet --all --remotes --contains=? --no-contains=? --merged=? "
    "--no-merged=? --points-at= --sort= --format= --color=? --no-color --column=? --no-column --abbrev=? --no-abbrev "
    "--ignore-case --omit-empty"
)
_TAGS = (
    "-l -i -n? --list --contains=? --no-contains=? --merged=? --no-merged=? --points-at= --sort= --format= "
    "--color=? --column=? --no-column --ignore-case --omit-empty"
)
LISTING_COMMANDS: Mapping[str, dict[str, str]] = {
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
CONFIG_READ_OPTIONS = (
    "-l -z --get --get-all --get-regexp --get-urlmatch --list --global --system --local --worktree --null --name-only "
    "--show-origin --show-scope --includes --no-includes --type= --bool --int --bool-or-int --path --default= --all "
    "--file=r -f:r"
)
# Only what runs no hooks and writes nowhere but into the work tree and the repository.
WRITING_COMMANDS: Mapping[str, str] = {
    "add": "-A -u -v -n -f -N --all --update --verbose --dry-run --force --intent-to-add --no-all --renormalize",
    "mv": "-f -k -n -v --force --dry-run --verbose",
    "rm": "-f -r -n -q --cached --force --quiet --dry-run --ignore-unmatch",
    "restore": "-S -W -s: -q --staged --worktree --source= --quiet",
    "reset": "-q --quiet --soft --mixed --hard --keep --merge",
}


# Other values merge again, with drivers of the repository, or run git in a submodule, with the submodule's own settings.
_ACCEPTED_VALUES: Mapping[str, frozenset[str]] = {
    "--diff-merges": word_set("off none on m first-parent 1 separate combined c dense-combined cc"),
    "--ignore-submodules": word_set("all dirty"),
}
_SIGNATURE = re.compile(r"%[-+ ]?G|signature")
_RAW_OBJECT = re.compile(r"%\(\*?raw")
_HARMLESS_GLOBAL_OPTIONS = word_set(
    "--no-pager -P --no-replace-objects --no-optional-locks --literal-pathspecs --glob-pathspecs "
    "--noglob-pathspecs --icase-pathspecs --no-lazy-fetch"
)


class GitCall(Struct, frozen=True):
    """A subcommand, its arguments, and the folder given with `-C`."""

    command: str
    args: tuple[Word, ...]
    folder: Word | None
    problem: str = ""


def split_git_args(args: tuple[Word, ...]) -> GitCall:
    """Skip the global options; `-c`, `--paginate`, `--exec-path` and the like can run programs, which is a problem."""
    folder: Word | None = None
    index, problem = 0, ""
    while index < len(args):
        word = args[index]
        if word.kind != "literal":
            return GitCall("", (), folder, f"`{word.source}` in place of a git subcommand")
        if word.text == "-C" and index + 1 < len(args):
            problem = problem or ("`git -C` twice" if folder else "")
            folder = args[index + 1]
            index += 2
        elif word.text in _HARMLESS_GLOBAL_OPTIONS:
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


def repository_folders(part: CommandPart) -> list[str]:
    """The folders in which a part looks for a repository."""
    if part.program != "git":
        return []
    folder = split_git_args(part.argv[1:]).folder
    return [os.path.join(cwd, folder.text) if folder else cwd for cwd in part.cwds]


def changes_repository(part: CommandPart) -> bool:
    """Whether a part is a git command that does not only read."""
    return part.program == "git" and not part.program_read_only


def enters_submodules(part: CommandPart) -> bool:
    """Whether a reading git compares nested repositories with their work trees, whatever the settings say about it."""
    if part.program != "git":
        return False
    git = split_git_args(part.argv[1:])
    words = [word.text for word in git.args]
    if git.command == "describe":
        return any(word.startswith(("--d", "--b")) for word in words)
    return git.command in ("diff-files", "diff-index") and not {"--cached", "--ignore-submodules"} & set(words)


def check_git(call: ProgramCall) -> CallEffects:
    git = split_git_args(call.args)
    try:
        effects = _check_git(call, git)
    except UnknownArguments as error:
        effects = unknown(str(error))
    if effects.known or not (written := written_files(git)):
        return effects
    why = effects.why or f"it writes {written[0].source}"
    return replace(effects, writes=(*effects.writes, *written), changes=True, why=why)


_OUTPUT_SHORT = word_set("archive format-patch mailsplit bugreport diagnose")
_OUTPUT_OPTIONS = ("--output", "--output-directory", "--export-marks", "--file")


def written_files(git: GitCall) -> list[Word]:
    """The files that options and operands of a git call name for its output."""
    words: list[Word] = []
    for word, following in pairwise((*git.args, literal(""))):
        name, equals, value = word.prefix.partition("=")
        long = len(name) > 4 and any(option.startswith(name) for option in _OUTPUT_OPTIONS)
        if long and (name != "--file" or git.command == "config"):
            words.append(attached_value(word, len(word.prefix) - len(value)) if equals else following)
        elif word.prefix.startswith("-o") and git.command in _OUTPUT_SHORT:
            words.append(attached_value(word, 2) if word.prefix[2:] or word.kind != "literal" else following)
        elif word.text == "-f" and git.command == "config":
            words.append(following)
    if git.command == "bundle" and [word.text for word in git.args[:1]] == ["create"]:
        words += [word for word in git.args[1:] if not word.prefix.startswith("-")][:1]
    if git.folder is None or git.folder.kind != "literal":
        return [word for word in words if word.source and word.text != "-"]
    return [replace(word, text=os.path.join(git.folder.text, word.text)) for word in words if word.source]


def _check_git(call: ProgramCall, git: GitCall) -> CallEffects:
    if git.command == "config" and (setting := _executable_setting(git.args, git.folder, call.state.home)):
        return setting
    if git.problem:
        return unknown(git.problem)
    if git.folder is not None and git.folder.kind != "literal":
        # The launcher could not neutralize the settings of these repositories.
        return unknown(f"which repository `git -C {git.folder.source}` means is known only when it runs")
    here = git.folder or literal(".")
    if not git.command or git.command in ("--version", "version", "-v"):
        return unknown("what these arguments of `git version` do is not known") if git.args else CallEffects()
    if git.command in WRITING_COMMANDS:
        operands = _parse(git.args, WRITING_COMMANDS[git.command]).operands
        named = [path for word in operands for path in _operand_paths(word, git.folder, call.state.root)]
        why = f"`git {git.command}` writes to the repository"
        return CallEffects(reads=(here, *named), writes=(here,), changes=True, why=why)
    effects = _check_reading(git)
    if not effects.known:
        return effects
    reads = [path for word in effects.reads for path in _operand_paths(word, git.folder, call.state.root)]
    recursive = shows_content(git.command, git.args)
    not_recursive = (here,) if recursive and names_files(git.command, git.args) else ()
    return CallEffects(reads=(here, *reads), recursive=recursive, not_recursive=not_recursive)


_DOES = {
    "push": "sends commits to a remote",
    **dict.fromkeys(("clone", "fetch", "ls-remote", "pull"), "talks to a remote"),
    **dict.fromkeys(("merge", "rebase", "cherry-pick", "revert", "am", "reset"), "changes commits and files"),
    **dict.fromkeys(("checkout", "restore", "switch", "clean", "rm", "mv", "apply"), "changes files"),
}


def _check_reading(git: GitCall) -> CallEffects:
    if git.command in READING_COMMANDS:
        return _check_formats(git.command, _parse(git.args, READING_COMMANDS[git.command]))
    if git.command in LISTING_COMMANDS:
        return _check_listing(git)
    if git.command == "config":
        return _check_config(git)
    return unknown(f"`git {git.command}` {_DOES.get(git.command, 'is not known to only read')}")


def _parse(args: tuple[Word, ...], options: str) -> ParsedArgs:
    return parse_args(args, option_table(options, exact=True))


def _check_formats(command: str, parsed: ParsedArgs) -> CallEffects:
    for value in parsed.values("--format", "--pretty"):
        # %G… runs the configured signature program.
        if value.kind != "literal" or _SIGNATURE.search(value.text):
            return unknown(f"the format of `git {command}` can run a program")
        if _RAW_OBJECT.search(value.text):
            return unknown("the format prints whole objects")
    for name, accepted in _ACCEPTED_VALUES.items():
        for value in parsed.values(name):
            if value.kind != "literal" or value.text not in accepted:
                return unknown(f"this value of `git {command} {name}` can run programs that the repository names")
    if any(word.dynamic and not word.revision for word in parsed.operands):
        return unknown("an argument is not known in advance")
    if command == "symbolic-ref" and len(parsed.operands) > 1:
        return unknown("`git symbolic-ref` writes if it is given two names")
    return CallEffects(reads=(*parsed.reads, *parsed.operands))


def _operand_paths(word: Word, folder: Word | None, root: str) -> list[Word]:
    """What an operand may name: a file here or in the `-C` folder; for `rev:path` also one below the repository's root."""
    if word.kind != "literal":
        return [] if word.revision else [word]
    # Also `:0:path`, a path in the index.
    colons = [index + 1 for index, letter in enumerate(word.text[:-1]) if letter == ":"][:2]
    names = [word.text, *(word.text[start:] for start in colons)]
    paths = [literal(os.path.join(folder.text, name)) if folder else literal(name) for name in names]
    return [*paths, *(literal(os.path.join(root, name)) for name in names[1:])]


def _check_listing(git: GitCall) -> CallEffects:
    """Commands that list or write, depending on the word or the options that follow."""
    tables = LISTING_COMMANDS[git.command]
    args = git.args
    word = args[0].text if args and args[0].kind == "literal" and not args[0].text.startswith("-") else ""
    options = tables.get(word)
    if options is not None:
        parsed = _parse(args[1:] if word else args, options)
        if not word and parsed.operands:
            # After an option the word may still be one that writes, as in `git remote -v update`.
            return unknown(f"`git {git.command}` with `{parsed.operands[0].source}` after its options may write")
        return _check_formats(git.command, parsed)
    if "*" not in tables:
        return unknown(f"`git {git.command} {args[0].source if args else ''}` is not known to only read")
    parsed = _parse(args, tables["*"])
    if parsed.operands and not parsed.has(*tables["needs"].split()):
        return unknown(f"`git {git.command}` with a name creates it")
    return _check_formats(git.command, parsed)


def _check_config(git: GitCall) -> CallEffects:
    parsed = _parse(git.args, CONFIG_READ_OPTIONS)
    operands = parsed.operands
    word = operands[0].text if operands and operands[0].kind == "literal" else ""
    reads = (
        parsed.has("--get", "--get-all", "--get-regexp", "--list", "-l", "--get-urlmatch")
        or (word in ("get", "list") and len(operands) <= 2)
        or (len(operands) == 1 and "." in word)
    )
    if not reads:
        return unknown("`git config` may write here")
    if any(operand.kind != "literal" for operand in operands):
        return unknown("an argument is not known in advance")
    return CallEffects(reads=tuple(parsed.reads))


_EXECUTABLE_SETTINGS = re.compile(
    r"(alias|pager)\..+|core\.(hookspath|fsmonitor|sshcommand|pager|editor|askpass|gitproxy|alternaterefscommand)"
    r"|sequence\.editor|diff\.external|diff\..+\.(command|textconv)|merge\..+\.driver|filter\..+\.(clean|smudge|process)"
    r"|(.+\.)?(cmd|helper|program|command|uploadpack|receivepack)|interactive\.difffilter|uploadpack\.packobjectshook"
    r"|submodule\..+\.update|include(if\..+)?\.path|init\.templatedir|protocol\.ext\.allow|sendemail\..*(server|cmd)",
    re.IGNORECASE,
)
# Programs that show or edit what they are given, and values that name no program.
_HARMLESS_VALUES = word_set("cat less more vi vim nano true false store cache manager osxkeychain checkout merge none")
_FILE_OPTIONS = ("-f", "--file")


def _executable_setting(args: tuple[Word, ...], folder: Word | None, home: str) -> CallEffects | None:
    """The effects of a `git config` that sets a program for git to run; None for any other."""
    words, file = _config_operands(args, folder, home)
    at = next((at for at, word in enumerate(words) if "." in word.prefix), len(words))
    key, value = (*words[at : at + 2], None, None)[:2]
    if key is None or value is None or not _EXECUTABLE_SETTINGS.fullmatch(key.prefix) or _is_harmless_value(key, value):
        return None
    return CallEffects(writes=(file,), known=False, changes=True, why=f"`{key.source}` names a program that git runs")


def _is_harmless_value(key: Word, value: Word) -> bool:
    if key.prefix.lower().startswith("alias."):
        return value.kind == "literal" and not value.text.lstrip().startswith("!")
    return value.kind == "literal" and value.text in _HARMLESS_VALUES


def _config_operands(args: tuple[Word, ...], folder: Word | None, home: str) -> tuple[list[Word], Word]:
    """The words of a `git config` that are no options, and the file it writes."""
    file = literal(f"{folder.text}/.git/config" if folder and folder.kind == "literal" else ".git/config")
    words: list[Word] = []
    rest = iter(args)
    for word in rest:
        name, equals, value = word.prefix.partition("=")
        if name in _FILE_OPTIONS:
            file = literal(value) if equals else next(rest, file)
        elif name == "--global":
            file = literal(f"{home}/.gitconfig")
        elif name == "--system":
            file = literal("/etc/gitconfig")
        elif words or not name.startswith("-"):
            words.append(word)
    return words, file


_CONTENT_ALWAYS = word_set("grep range-diff")
_CONTENT_UNLESS_NAMES = word_set("diff diff-index diff-files")
_CONTENT_COMMANDS = _CONTENT_ALWAYS | _CONTENT_UNLESS_NAMES | word_set("log show reflog stash rev-list diff-tree")
_NAME_OPTIONS = word_set(
    "--name-only --name-status --stat --numstat --shortstat --dirstat --summary --compact-summary --raw --quiet --no-patch -s"
)
_PATCH_OPTIONS = word_set(
    "--patch --unified --patch-with-raw --patch-with-stat --cc --diff-merges --dd --word-diff "
    "--word-diff-regex --color-words --function-context --binary --text --check"
)
_SHORT_PATCH_OPTION = re.compile(r"-[A-Za-z]*[puUcmLW]")
_REVISION_PATH = re.compile(r"[^:]*:.+")
_METADATA_OPTIONS = word_set("-t -s -e --batch-check")
_COMMIT = re.compile(r"(HEAD|@)([~^]\d*)*")
_PATHSPEC_GLOB = re.compile(r"[*?\[\\]")
# Subcommands that print no content of files unless an option below asks for it.
QUIET_COMMANDS = word_set(
    "add am apply bisect branch checkout cherry-pick clean commit config fetch gc help init lfs maintenance merge mv notes prune "
    "pull push rebase remote repack reset restore revert rm sparse-checkout stash submodule switch symbolic-ref tag update-index "
    "update-ref version worktree clone archive bundle format-patch fast-export checkout-index"
)
# These show changes when asked for them piece by piece, or for what a commit would hold.
_PRINTS_HUNKS = word_set("add checkout commit reset restore stash notes")
_HUNK_OPTION = re.compile(r"--(patch|verbose|interactive|edit)|-[a-z]*[pvie][a-z]*")


def shows_content(command: str, args: tuple[Word, ...]) -> bool:
    """Whether the content of files may be shown, and not only their names."""
    flags = {word.text.partition("=")[0] for word in before_paths(args) if word.prefix.startswith("-")}
    if command == "cat-file":
        return not flags & _METADATA_OPTIONS
    if command == "status":
        return any(flag == "--verbose" or re.fullmatch(r"-[a-z]*v[a-z]*", flag) for flag in flags)
    if command == "show" and flags & _NAME_OPTIONS and not flags & _PATCH_OPTIONS:
        # Of a file's id it shows the content whatever the options are; an id alone does not tell.
        operands = [word for word in args if not word.prefix.startswith("-")]
        return not all(word.kind == "literal" and _COMMIT.fullmatch(word.text) for word in operands)
    if flags & _PATCH_OPTIONS or any(flag[:2] != "--" and _SHORT_PATCH_OPTION.match(flag) for flag in flags):
        return command in _CONTENT_COMMANDS
    return command in (*_CONTENT_ALWAYS, "show") or (command in _CONTENT_UNLESS_NAMES and not flags & _NAME_OPTIONS)


def may_print_content(args: tuple[Word, ...]) -> bool:
    """Whether a git call that is not understood may print the content of files."""
    call = split_git_args(args)
    if call.command not in QUIET_COMMANDS:
        return True
    words = {word.text for word in call.args}
    if any(map(_RAW_OBJECT.search, words)):
        return True
    if call.command == "bisect":
        return not words.isdisjoint(("view", "visualize", "replay"))
    return call.command in _PRINTS_HUNKS and any(map(_HUNK_OPTION.fullmatch, words))


def names_files(command: str, args: tuple[Word, ...]) -> bool:
    """Whether the call names every file it shows: paths behind `--`, or nothing but `revision:path`."""
    front = before_paths(args)
    paths = args[len(front) + 1 :]
    if paths:
        # A pathspec that begins with a colon has magic, which can mean everything.
        names = [word.text for word in paths if word.kind == "literal" and word.text and not word.text.startswith(":")]
        folders = [name for name in names if os.path.normpath(name) == "."]
        return len(names) == len(paths) and not folders and not any(map(_PATHSPEC_GLOB.search, names))
    operands = [word for word in front if not word.prefix.startswith("-")]
    return (
        command in ("show", "cat-file")
        and bool(operands)
        and all(word.kind == "literal" and _REVISION_PATH.fullmatch(word.text) for word in operands)
    )


def before_paths(args: tuple[Word, ...]) -> tuple[Word, ...]:
    end = next((index for index, word in enumerate(args) if word.kind == "literal" and word.text == "--"), len(args))
    return args[:end]


# Commands of others that git runs, for rules that forbid some

_GIT_RUN_SUBCOMMANDS = {"submodule": "foreach", "bisect": "run", "for-each-repo": "", "filter-branch": "", "config": ""}
_GIT_RUN_SUBCOMMANDS |= {"remote-ext": "", "shell": "", "remote-fd": ""}
_GIT_COMMAND_OPTIONS = {"--exec", "--extcmd", "--upload-pack", "--receive-pack", "--open-files-in-pager", "--config"}
_GIT_COMMAND_OPTIONS |= {
    "--smtp-server",
    "--sendmail-cmd",
    "--to-cmd",
    "--cc-cmd",
    "--exec-path",
    "--config-env",
    "--exec",
}
_GIT_SHORT_COMMAND_OPTIONS = {
    "rebase": ("-x",),
    "difftool": ("-x",),
    "grep": ("-O",),
    **dict.fromkeys(("clone", "ls-remote", "fetch-pack"), ("-u",)),
}
# Settings of git that run nothing, whatever their value is.
HARMLESS_SETTING = re.compile(
    r"(user|color|advice|log|init|safe|commit|pull|push|fetch|column|status|http|gc\.auto|merge\.conflictstyle|rebase\.auto\w+"
    r"|core\.(quotepath|autocrlf|longpaths|abbrev|filemode|symlinks|ignorecase))\b.*",
    re.IGNORECASE | re.DOTALL,
)


def commands_in_git_call(words: tuple[Word, ...]) -> Iterator[str]:
    """Yield what git would run: settings of `-c`, options that name programs, and arguments of some sub-commands."""
    texts = [word.text if word.kind == "literal" else word.source.strip("\"'") for word in words]
    call = split_git_args(words)
    for text, following in pairwise((*texts, "")):
        option, equals, value = text.partition("=")
        if option in _GIT_COMMAND_OPTIONS or (option.startswith("--") and option.endswith("-filter")):
            yield value if equals else following
        elif text[:2] in _GIT_SHORT_COMMAND_OPTIONS.get(call.command, ()):
            yield text[2:] or following
        elif text.startswith("ext::"):
            # There a percent sign before a blank keeps words together.
            yield text.removeprefix("ext::").replace("% ", " ")
    # Behind most sub-commands `-c` means something else.
    global_count = len(texts) if call.command == "clone" else len(texts) - len(call.args)
    yield from (value for option, value in pairwise(texts[:global_count]) if option == "-c")
    marker = _GIT_RUN_SUBCOMMANDS.get(call.command)
    arguments = [word.text if word.kind == "literal" else word.source.strip("\"'") for word in call.args]
    if marker is not None and (not marker or marker in arguments):
        yield " ".join(arguments[arguments.index(marker) + 1 :] if marker else arguments)

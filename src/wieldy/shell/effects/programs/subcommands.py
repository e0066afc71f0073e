"""Other spellings of a subcommand, which rules that deny or ask must see: built-in aliases, abbreviations, `git-push`.

People can define aliases of their own in settings of the project, of the home folder, in options and variables. None of
these can replace a command that the program has, so that only a word that is none of them may mean another command.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice

from msgspec import Struct

from wieldy.shell.effects.programs.git import split_git_args
from wieldy.shell.effects.programs.spec import word_set
from wieldy.shell.effects.words import Word, unquoted_text


class Subcommands(Struct, frozen=True):
    """`names`: the commands of a program. `aliases`: other names it has for them. `abbreviates`: a unique beginning is enough.

    `open`: settings can define more.
    """

    names: frozenset[str]
    aliases: Mapping[str, str] = {}
    abbreviates: bool = False
    open: bool = True


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split())


_GIT = Subcommands(
    word_set(
        "add am annotate apply archive bisect blame branch bugreport bundle cat-file check-attr check-ignore check-mailmap "
        "check-ref-format checkout checkout-index cherry cherry-pick clean clone column commit commit-graph commit-tree config "
        "count-objects credential credential-cache credential-store daemon describe diagnose diff diff-files diff-index "
        "diff-tree difftool fast-export fast-import fetch fetch-pack filter-branch fmt-merge-msg for-each-ref for-each-repo "
        "format-patch fsck fsck-objects gc get-tar-commit-id grep hash-object help hook http-backend http-fetch http-push "
        "imap-send index-pack init init-db instaweb interpret-trailers log ls-files ls-remote ls-tree mailinfo mailsplit "
        "maintenance merge merge-base merge-file merge-index merge-octopus merge-one-file merge-ours merge-recursive "
        "merge-resolve merge-subtree merge-tree mergetool mktag mktree multi-pack-index mv name-rev notes pack-objects "
        "pack-redundant pack-refs patch-id prune prune-packed pull push quiltimport range-diff read-tree rebase receive-pack "
        "reflog remote remote-ext remote-fd remote-ftp remote-ftps remote-http remote-https repack replace request-pull rerere "
        "reset restore rev-list rev-parse revert rm send-pack shell shortlog show show-branch show-index show-ref "
        "sparse-checkout stage stash status stripspace submodule switch symbolic-ref tag unpack-file unpack-objects "
        "update-index update-ref update-server-info upload-archive upload-pack var verify-commit verify-pack verify-tag "
        "version whatchanged worktree write-tree"
    ),
    # Programs that are a part of the command, or do what it does.
    _pairs(
        "send-pack=push http-push=push remote-ext=push remote-fd=push remote-ftp=push remote-ftps=push remote-http=push "
        "remote-https=push fetch-pack=fetch http-fetch=fetch stage=add init-db=init fsck-objects=fsck whatchanged=log"
    ),
)
# Subcommands of other programs that come with git, by their first words.
_GIT_COMPOUND = {
    ("subtree", "push"): "push",
    ("subtree", "pull"): "pull",
    ("lfs", "push"): "push",
    ("svn", "dcommit"): "push",
    ("p4", "submit"): "push",
}
_NPM = Subcommands(
    word_set(
        "access adduser audit bugs cache ci completion config dedupe deprecate diff dist-tag docs doctor edit exec explain "
        "explore find-dupes fund get help help-search init install install-ci-test install-test link ll login logout ls org "
        "outdated owner pack ping pkg prefix profile prune publish query rebuild repo restart root run sbom search set "
        "shrinkwrap star stars start stop team test token undeprecate uninstall unpublish unstar update version view whoami"
    ),
    _pairs(
        "author=owner home=docs issues=bugs info=view show=view find=search add=install i=install in=install ins=install "
        "inst=install insta=install instal=install isnt=install isnta=install isntal=install isntall=install "
        "install-clean=ci isntall-clean=ci clean-install=ci cit=install-ci-test it=install-test t=test tst=test a=ls list=ls "
        "la=ll un=uninstall unlink=uninstall remove=uninstall rm=uninstall r=uninstall rb=rebuild upgrade=update up=update "
        "udpate=update rum=run run-script=run urn=run x=exec v=view create=init innit=init ddp=dedupe c=config s=search "
        "se=search verison=version ln=link hlep=help why=explain add-user=adduser dist-tags=dist-tag sit=install-ci-test "
        "u=update ic=ci ogr=org clean-install-test=install-ci-test"
    ),
    abbreviates=True,
    open=False,
)
SUBCOMMANDS: Mapping[str, Subcommands] = {
    "git": _GIT,
    "npm": _NPM,
    "pnpm": Subcommands(
        frozenset(),
        _pairs("i=install rm=remove uninstall=remove un=remove up=update upgrade=update ls=list ln=link"),
        open=False,
    ),
    "cargo": Subcommands(
        word_set(
            "add bench build check clean clippy config doc fetch fix fmt generate-lockfile help info init install "
            "locate-project login logout metadata miri new owner package pkgid publish read-manifest remove report run "
            "rustc rustdoc search test tree uninstall update vendor verify-project version yank nextest"
        ),
        _pairs("b=build c=check d=doc t=test r=run rm=remove"),
    ),
    "hg": Subcommands(
        word_set(
            "abort add addremove annotate archive backout bisect bookmarks branch branches bundle cat clone commit config "
            "continue copy diff export files forget graft grep heads help identify import incoming init locate log manifest "
            "merge outgoing parents paths phase pull push recover remove rename resolve revert rollback root serve shelve "
            "status summary tag tags tip unbundle unshelve update verify version"
        ),
        _pairs("ci=commit co=update checkout=update st=status up=update rm=remove mv=rename move=rename"),
        abbreviates=True,
    ),
    "gh": Subcommands(
        word_set(
            "alias api attestation auth browse cache codespace completion config extension gist gpg-key help issue label org "
            "pr preview project release repo ruleset run search secret ssh-key status variable version workflow"
        ),
        _pairs("ext=extension extensions=extension cs=codespace rs=ruleset"),
    ),
}
_ALIASES: Mapping[str, Mapping[str, str]] = {
    "helm": _pairs("del=uninstall delete=uninstall un=uninstall ls=list"),
    "brew": _pairs("rm=uninstall remove=uninstall ls=list"),
    "svn": _pairs("ci=commit up=update co=checkout rm=delete del=delete remove=delete mv=move ren=move sw=switch"),
}
# Groups of subcommands that may be left out.
_GROUPS = {"docker": "container", "podman": "container"}
_PROGRAM_NAMES = {"gmake": "make", "apt-get": "apt", "yarnpkg": "yarn", "docker-compose": "docker compose"}
_VERSIONED = re.compile(r"(pip|npm|node)-?[\d.]+")
# Each of their operands may be what they do.
_SEVERAL_TARGETS = word_set("make just task rake ninja mvn gradle gradlew tox nox invoke")
_MAX_TEXTS = 8
_MAX_TARGETS = 32
# Subcommands stand among the first words.
_MAX_DEPTH = 3


class OtherSpellings(Struct, frozen=True):
    """`texts`: the command as rules spell it. `uncertain`: the word that settings may define as another command."""

    texts: tuple[str, ...] = ()
    uncertain: str = ""


def other_spellings(argv: tuple[Word, ...]) -> OtherSpellings:
    """Other spellings of a command by which rules may name what it does."""
    if not argv:
        return OtherSpellings()
    program = os.path.basename(argv[0].text) if argv[0].kind == "literal" else ""
    if program.startswith("git-") and len(program) > 4:
        argv = (Word("git", "literal", "git", "git"), Word(program[4:], "literal", program[4:], program[4:]), *argv[1:])
        program = "git"
    table = SUBCOMMANDS.get(program)
    if program != "git" and program:
        general = tuple(_without_options(program, argv[1:]))
        if table is None:
            return OtherSpellings(general)
    elif table is None:
        return OtherSpellings()
    else:
        general = ()
    if program == "git":
        call = split_git_args(argv[1:])
        word, args = call.command, call.args
        is_known = bool(word) or all(one.kind == "literal" for one in argv)
    else:
        at = next(
            (at for at, one in enumerate(argv[1:], 1) if not (one.kind == "literal" and one.text.startswith("-"))),
            len(argv),
        )
        word, args = (
            (argv[at].text if argv[at].kind == "literal" else "", argv[at + 1 :]) if at < len(argv) else ("", ())
        )
        is_known = bool(word) or at == len(argv)
    names = _meanings(word, table) if word else []
    if program == "git" and args and (compound := _GIT_COMPOUND.get((word, args[0].text))):
        names, args = [*names, compound], args[1:]
    if program == "git" and word == "for-each-repo":
        args = tuple(args[next((at for at, one in enumerate(args) if not one.text.startswith("-")), len(args)) :])
        names = [*names, args[0].text] if args else names
        args = args[1:]
    rest = unquoted_text((argv[0], *args)).partition(" ")[2]
    texts = [f"{program} {name} {rest}".strip() for name in dict.fromkeys((word, *names)) if name]
    uncertain = (
        "" if is_known and (not table.open or names or word in table.names or not word) else word or argv[0].text
    )
    return OtherSpellings((*texts[:_MAX_TEXTS], *general), uncertain)


def _without_options(program: str, args: tuple[Word, ...]) -> Iterator[str]:
    """A command without the options around its subcommands, each with a value and without, and by other names."""
    name = _PROGRAM_NAMES.get(program, program)
    if match := _VERSIONED.fullmatch(program):
        name = match[1]
    if not args or args[0].kind == "multiple":
        return
    if program in _SEVERAL_TARGETS or name in _SEVERAL_TARGETS:
        yield from (f"{name} {word.text}" for word in args[:_MAX_TARGETS] if not word.prefix.startswith("-"))
        return
    found = dict.fromkeys(islice(_subcommands(args, _MAX_DEPTH), _MAX_TEXTS))
    for words, rest in found:
        ending = unquoted_text(rest) if rest else ""
        if not words:
            continue
        first, *others = words
        meanings = dict.fromkeys((first, _ALIASES.get(name, {}).get(first, first)))
        for text in (" ".join((meaning, *others)) for meaning in meanings):
            yield f"{name} {text} {ending}".strip()
            group = _GROUPS.get(name)
            if group is not None:
                yield f"{name} {text.removeprefix(f'{group} ') if text.startswith(group) else f'{group} {text}'} {ending}".strip()


def _subcommands(args: tuple[Word, ...], depth: int) -> Iterator[tuple[tuple[str, ...], tuple[Word, ...]]]:
    """The ways to read words as at most `depth` subcommands among options, and the words behind."""
    if not args or not depth or args[0].kind != "literal":
        yield (), args
    elif not args[0].text.startswith("-"):
        yield from (((args[0].text, *words), rest) for words, rest in _subcommands(args[1:], depth - 1))
    else:
        yield from _subcommands(args[1:], depth)
        if "=" not in args[0].text and len(args) > 1 and not args[1].prefix.startswith("-"):
            yield from _subcommands(args[2:], depth)


def _meanings(word: str, table: Subcommands) -> list[str]:
    """The commands that a word means to a program besides one of that very name."""
    if word in table.aliases:
        return [table.aliases[word]]
    if not table.abbreviates or word in table.names:
        return []
    beginnings = [name for name in table.names if name.startswith(word)]
    return beginnings + [table.aliases[name] for name in table.aliases if name.startswith(word)]

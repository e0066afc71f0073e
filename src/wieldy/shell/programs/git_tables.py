"""The options that git's looking subcommands are accepted with, in exact spelling: git's abbreviations change with its version.

Never listed: `--output` writes, `--ext-diff` and `--textconv` run configured programs, `--show-signature` a signature program,
`--open-files-in-pager` a pager; `--upload-pack`, `--exec` and `--contents` reach elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping

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

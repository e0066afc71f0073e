"""Programs that only read: text tools, file listings and system information."""

from __future__ import annotations

from collections.abc import Mapping

from wieldy.shell.effects.programs.spec import ProgramSpec, word_set

_CHECKSUM_OPTIONS = "-bt --binary --text --tag --zero -z --help --version"

READ_ONLY_TOOLS: Mapping[str, ProgramSpec] = {
    # Text
    "cat": ProgramSpec(
        "-AbeEnstTuv --show-all --number-nonblank --show-ends --number --squeeze-blank --show-tabs "
        "--show-nonprinting --help --version",
        "files",
        harmless=True,
    ),
    "tac": ProgramSpec("-br -s: --before --regex --separator= --help --version", "files", harmless=True),
    "rev": ProgramSpec("-0 --zero --help --version", "files", harmless=True),
    "head": ProgramSpec(
        "-qvz -n: -c: -# --lines= --bytes= --quiet --silent --verbose --zero-terminated --help --version",
        "files",
        harmless=True,
        bounding_options=("-c", "--bytes"),
    ),
    "tail": ProgramSpec(
        "-fFqvzr -n: -c: -s: -# --lines= --bytes= --follow=? --quiet --silent --verbose --retry --pid= "
        "--sleep-interval= --max-unchanged-stats= --zero-terminated --help --version",
        "files",
        harmless=True,
    ),
    "wc": ProgramSpec(
        "-cmlLw --bytes --chars --lines --max-line-length --words --total= --help --version !--files0-from",
        "files",
    ),
    "nl": ProgramSpec(
        "-p -b: -d: -f: -h: -i: -l: -n: -s: -v: -w: --body-numbering= --section-delimiter= --footer-numbering= "
        "--header-numbering= --line-increment= --join-blank-lines= --number-format= --no-renumber --number-separator= "
        "--starting-line-number= --number-width= --help --version",
        "files",
        harmless=True,
    ),
    "cut": ProgramSpec(
        "-nsz -b: -c: -d: -f: --bytes= --characters= --delimiter= --fields= --complement --only-delimited "
        "--output-delimiter= --zero-terminated --help --version",
        "files",
        harmless=True,
    ),
    "tr": ProgramSpec(
        "-cCdst --complement --delete --squeeze-repeats --truncate-set1 --help --version", "text", harmless=True
    ),
    "paste": ProgramSpec("-sz -d: --delimiters= --serial --zero-terminated --help --version", "files", harmless=True),
    "join": ProgramSpec(
        "-iz -a: -e: -j: -o: -t: -v: -1: -2: --ignore-case --check-order --nocheck-order --header "
        "--zero-terminated --help --version",
        "files",
        harmless=True,
    ),
    "comm": ProgramSpec(
        "-123z --check-order --nocheck-order --output-delimiter= --total --zero-terminated --help --version",
        "files",
        harmless=True,
    ),
    "column": ProgramSpec(
        "-txJneLd -c: -s: -o: -N: -l: -E: -H: -O: -R: -T: -W: -r: -i: -p: -C: --table --separator= "
        "--output-separator= --table-columns= --json --fillrows --columns= --output-width= --table-name= "
        "--table-noheadings --keep-empty-lines",
        "files",
        harmless=True,
    ),
    "fold": ProgramSpec("-bs -w: --bytes --spaces --width= --help --version", "files", harmless=True),
    "fmt": ProgramSpec(
        "-cstu -p: -w: -g: -# --crown-margin --prefix= --split-only --tagged-paragraph --uniform-spacing --width= "
        "--goal=",
        "files",
    ),
    "expand": ProgramSpec("-i -t: -# --initial --tabs= --help --version", "files", harmless=True),
    "unexpand": ProgramSpec("-a -t: -# --all --first-only --tabs= --help --version", "files", harmless=True),
    "uniq": ProgramSpec(
        "-cdDuiz -f: -s: -w: -# --count --repeated --all-repeated=? --group=? --skip-fields= --ignore-case "
        "--skip-chars= --unique --zero-terminated --check-chars= --help --version",
        "input then output",
    ),
    "sort": ProgramSpec(
        "-bdfgiMhnRrVcCmsuz -k: -t: -S: -o:w --ignore-leading-blanks --dictionary-order --ignore-case "
        "--general-numeric-sort --ignore-nonprinting --month-sort --human-numeric-sort --numeric-sort --random-sort "
        "--random-source=r --reverse --sort= --version-sort --batch-size= --check=? --debug --key= --merge --stable "
        "--buffer-size= --field-separator= --parallel= --unique --zero-terminated --output=w --help --version "
        "!--compress-program !--files0-from !--temporary-directory",
        "files",
    ),
    "shuf": ProgramSpec(
        "-erz -i: -n: -o:w --echo --input-range= --head-count= --output=w --random-source=r --repeat --zero-terminated",
        "files",
    ),
    "tsort": ProgramSpec("--help --version", "files", harmless=True),
    "numfmt": ProgramSpec(
        "-d: -z --delimiter= --field= --format= --from= --to= --suffix= --padding= --round= --header=? --invalid=",
        "text",
    ),
    "grep": ProgramSpec(
        "-EFGPivwxzcLlqsbHhnTZUoaIrRyuV -e: -f:r -m: -A: -B: -C: -d: -D: -# --extended-regexp --fixed-strings "
        "--basic-regexp --perl-regexp --regexp= --file=r --ignore-case --no-ignore-case --invert-match --word-regexp "
        "--line-regexp --null-data --count --color=? --colour=? --files-without-match --files-with-matches "
        "--max-count= --only-matching --quiet --silent --no-messages --byte-offset --with-filename --no-filename "
        "--label= --line-number --initial-tab --null --after-context= --before-context= --context= --text "
        "--binary-files= --devices= --directories= --exclude= --exclude-from=r --exclude-dir= --include= --recursive "
        "--dereference-recursive --line-buffered --binary --unix-byte-offsets --help --version",
        "pattern then files",
        pattern_options=("-e", "-f", "--regexp", "--file"),
        recursive_options=("-r", "-R", "-d", "--recursive", "--dereference-recursive", "--directories"),
        link_options=("-R", "--dereference-recursive"),
    ),
    "rg": ProgramSpec(
        "-isSFwxvclnNHIopPUquaL0.hV -e: -f:r -g: -t: -T: -A: -B: -C: -m: -M: -r: -E: -d: -j: --regexp= --file=r "
        "--glob= --iglob= --type= --type-not= --type-list --files --files-with-matches --files-without-match --count "
        "--count-matches --line-number --no-line-number --hidden --no-hidden --no-ignore --no-ignore-vcs "
        "--no-ignore-parent --no-ignore-global --no-ignore-dot --no-ignore-files --ignore-case --smart-case "
        "--case-sensitive --fixed-strings --word-regexp --line-regexp --invert-match --context= --after-context= "
        "--before-context= --max-count= --max-depth= --maxdepth= --max-columns= --max-columns-preview --json --stats "
        "--multiline --multiline-dotall --pcre2 --engine= --only-matching --replace= --sort= --sortr= --color= "
        "--colors= --heading --no-heading --column --no-column --vimgrep --with-filename --no-filename --trim --text "
        "--quiet --null --null-data --follow --unrestricted --encoding= --max-filesize= --one-file-system --passthru "
        "--pretty --no-messages --threads= --crlf --binary --glob-case-insensitive --context-separator= "
        "--field-match-separator= --include-zero --line-buffered --path-separator= --help --version",
        "pattern then files",
        exact=True,
        pattern_options=("-e", "-f", "--regexp", "--file", "--files", "--type-list"),
        recursive_options=(".",),
        link_options=("-L", "--follow"),
    ),
    "diff": ProgramSpec(
        "-qscuenyptTrNiEZbwBad -C: -U: -W: -F: -x: -X:r -S: -I: --brief --report-identical-files --context=? "
        "--unified=? --ed --rcs --side-by-side --width= --left-column --suppress-common-lines --show-c-function "
        "--show-function-line= --label= --expand-tabs --initial-tab --tabsize= --suppress-blank-empty --recursive "
        "--no-dereference --new-file --unidirectional-new-file --ignore-file-name-case --no-ignore-file-name-case "
        "--exclude= --exclude-from=r --starting-file= --from-file=r --to-file=r --ignore-case --ignore-tab-expansion "
        "--ignore-trailing-space --ignore-space-change --ignore-all-space --ignore-blank-lines "
        "--ignore-matching-lines= --text --strip-trailing-cr --minimal --normal --horizon-lines= --speed-large-files "
        "--color=? --palette= --help --version !--paginate !--ifdef !--GTYPE-group-format !--line-format",
        "files",
        recursive=True,
        link_options=(".",),
    ),
    "cmp": ProgramSpec(
        "-bls -i: -n: --print-bytes --ignore-initial= --verbose --bytes= --quiet --silent --help --version",
        "files",
        harmless=True,
        bounding_options=("-n", "--bytes"),
    ),
    "od": ProgramSpec(
        "-abcdfilosvx -A: -j: -N: -S: -t: -w? --address-radix= --skip-bytes= --read-bytes= --strings=? --format= "
        "--output-duplicates --width=? --endian= --traditional",
        "files",
        harmless=True,
        bounding_options=("-N", "--read-bytes"),
    ),
    "hexdump": ProgramSpec(
        "-bcCdovx -e: -f:r -n: -s: --one-byte-octal --one-byte-char --canonical --no-squeezing --length= --skip=",
        "files",
        bounding_options=("-n", "--length"),
    ),
    "base64": ProgramSpec("-dDi -w: --decode --ignore-garbage --wrap= --help --version !--output !--input", "files"),
    "base32": ProgramSpec("-di -w: --decode --ignore-garbage --wrap= --help --version", "files"),
    "cksum": ProgramSpec("--help --version --untagged --tag -a: --algorithm=", "files"),
    "sum": ProgramSpec("-rs --sysv --help --version", "files"),
    **{
        name: ProgramSpec(_CHECKSUM_OPTIONS, "files")
        for name in ("md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum")
    },
    "b2sum": ProgramSpec(_CHECKSUM_OPTIONS + " -l: --length=", "files"),
    "shasum": ProgramSpec("-bt -a: --algorithm= --binary --text", "files"),
    "iconv": ProgramSpec("-cls -f: -t: -o:w --from-code= --to-code= --list --silent --output=w", "files"),
    "bzcat": ProgramSpec("-s --small", "files"),
    "xzcat": ProgramSpec("-q --quiet", "files"),
    # Files, the system and harmless builtins
    "ls": ProgramSpec(
        "-aAbBcCdDfFgGhHiklLmnNopqQrRsStuUvxXZ1 -I: -T: -w: --all --almost-all --author --escape --block-size= "
        "--ignore-backups --color=? --directory --dired --classify=? --file-type --format= --full-time "
        "--group-directories-first --no-group --human-readable --si --dereference-command-line "
        "--dereference-command-line-symlink-to-dir --hide= --hyperlink=? --indicator-style= --inode --ignore= "
        "--kibibytes --dereference --numeric-uid-gid --literal --hide-control-chars --show-control-chars --quote-name "
        "--quoting-style= --reverse --recursive --size --sort= --time= --time-style= --tabsize= --width= --context "
        "--zero --help --version",
        "files or cwd",
        harmless=True,
    ),
    "dir": ProgramSpec("-aAlh1 --all --color=?", "files or cwd", harmless=True),
    "tree": ProgramSpec(
        "-adlfxqNQpugshDFiCnAStrUcvJXI1 -L: -P: -I: -H: -T: -o:w --charset= --filelimit= --dirsfirst --filesfirst "
        "--du --si --noreport --prune --gitignore --ignore-case --matchdirs --inodes --device --timefmt= --sort= "
        "--version --help !--fromfile !--gitfile !--infofile !--fromtabfile",
        "files or cwd",
        exact=True,
        link_options=("-l",),
    ),
    "stat": ProgramSpec(
        "-LftxsF -c: --dereference --file-system --cached= --format= --printf= --terse --help --version",
        "files",
        harmless=True,
    ),
    "file": ProgramSpec(
        "-bEhiIklLnNrsv0 -e: -F: -P: --brief --mime --mime-type --mime-encoding --dereference --no-dereference --raw "
        "--keep-going --extension --apple --version --help !--compile !--files-from !--uncompress "
        "!--uncompress-noreport !--magic-file",
        "files",
    ),
    "du": ProgramSpec(
        "-0aAbchHkLlmsSDPx -B: -d: -t: -X:r --null --all --apparent-size --block-size= --bytes --total "
        "--dereference-args --max-depth= --human-readable --inodes --dereference --count-links --no-dereference "
        "--separate-dirs --si --summarize --threshold= --time=? --time-style= --exclude-from=r --exclude= "
        "--one-file-system --help --version !--files0-from",
        "files or cwd",
    ),
    "df": ProgramSpec(
        "-ahHiklmPTv -B: -t: -x: --all --block-size= --human-readable --si --inodes --local --no-sync --output=? "
        "--portability --total --type= --print-type --exclude-type= --help --version",
        "text",
        harmless=True,
    ),
    "realpath": ProgramSpec(
        "-eEmLPqsz --canonicalize-existing --canonicalize-missing --logical --physical --quiet --relative-to= "
        "--relative-base= --strip --no-symlinks --zero --help --version",
        "text",
        harmless=True,
    ),
    "readlink": ProgramSpec(
        "-femnqsvz --canonicalize --canonicalize-existing --canonicalize-missing --no-newline --quiet --silent "
        "--verbose --zero",
        "text",
        harmless=True,
    ),
    "basename": ProgramSpec("-az -s: --multiple --suffix= --zero --help --version", "text", harmless=True),
    "dirname": ProgramSpec("-z --zero --help --version", "text", harmless=True),
    "pwd": ProgramSpec("-LP --logical --physical", "none"),
    "whoami": ProgramSpec("--help --version", "none"),
    "id": ProgramSpec("-aZgGnruz --context --group --groups --name --real --user --zero --help --version", "text"),
    "groups": ProgramSpec("--help --version", "text"),
    "logname": ProgramSpec("", "none"),
    "tty": ProgramSpec("-s --silent --quiet", "none"),
    "uname": ProgramSpec(
        "-asnrvmpio --all --kernel-name --nodename --kernel-release --kernel-version --machine --processor "
        "--hardware-platform --operating-system --help --version",
        "none",
    ),
    "arch": ProgramSpec("", "none"),
    # Its other options ask a name server.
    "hostname": ProgramSpec("-Is --all-ip-addresses --short --help --version", "none"),
    "nproc": ProgramSpec("--all --ignore= --help --version", "none"),
    "uptime": ProgramSpec("-psV --pretty --since --help --version", "none"),
    "free": ProgramSpec(
        "-bkmghltwvV -c: -s: --bytes --kibi --mebi --gibi --human --lohi --total --wide --si --count= --seconds=",
        "none",
    ),
    "lscpu": ProgramSpec(
        "-aBbcJprsxy -e? --all --online --offline --json --extended=? --parse=? --hex --physical --bytes", "none"
    ),
    "lsblk": ProgramSpec(
        "-abdfilmnprtJOP -e: -I: -o: -x: --all --bytes --fs --json --list --noheadings --output= --paths --tree=?",
        "text",
    ),
    "locale": ProgramSpec("-acmkv --all-locales --charmaps --category-name --keyword-name --verbose", "text"),
    "getconf": ProgramSpec("-a -v:", "text"),
    "who": ProgramSpec("-abdHlmpqrstTuw --all --boot --count --heading --login --mesg --short --users", "files"),
    "w": ProgramSpec("-fhisuoV --no-header --short --from", "text"),
    "last": ProgramSpec("-aFiwxR -n: -s: -t: -p: -#", "text"),
    "pgrep": ProgramSpec(
        "-acflnovwxiL -d: -P: -g: -s: -t: -u: -U: -G: --full --list-name --list-full --newest --oldest --count", "text"
    ),
    "printenv": ProgramSpec("-0 --null --help --version", "text"),
    "cal": ProgramSpec("-13jmnsSyYwV -A: -B: -n:", "text"),
    "seq": ProgramSpec("-w -f: -s: --format= --separator= --equal-width --help --version -#", "text"),
    "sleep": ProgramSpec("--help --version", "text"),
    "expr": ProgramSpec("--help --version", "text"),
    "bc": ProgramSpec("-lqsw --mathlib --quiet --standard --warn --help --version", "files", exact=True),
    "factor": ProgramSpec("--help --version -h", "text"),
    "which": ProgramSpec("-as --all --skip-alias --skip-functions --tty-only --version", "text"),
    "whereis": ProgramSpec("-bmslu", "text"),
    "type": ProgramSpec("-afptP", "text"),
    "wait": ProgramSpec("", "text"),
    "jobs": ProgramSpec("-lnprs", "none"),
    "times": ProgramSpec("", "none"),
    "umask": ProgramSpec("-pS", "none"),
}

# Programs that print their version before they look at any file of the project. `go`, `cargo` and `rustc` are not among
# them: files of the project may name another toolchain that they fetch or run.
_VERSION_PROGRAMS = word_set(
    "python python3 node nodejs npm deno bun java javac ruby perl php gcc g++ clang cc make cmake docker podman helm "
    "git bash zsh tsc uv pip pip3 pipx ruff mypy black sqlite3 psql curl wget rg fd jq gh ffmpeg tar unzip sed awk "
    "gawk grep find clang-format clang-tidy shellcheck shfmt pandoc gdb strace valgrind ninja meson patch rsync tmux xz zstd "
    "bzip2 zip openssl yq lsof"
)
# Those that print their help themselves, without a pager and before they look at any file.
HELP_PROGRAMS = word_set(
    "python python3 node ruby perl php gcc g++ clang make cmake tar unzip sed awk gawk grep find curl wget rg fd jq ruff mypy "
    "black shellcheck rsync patch"
)
VERSION_OPTIONS: Mapping[str, frozenset[str]] = {
    **{name: frozenset({"--version"}) for name in _VERSION_PROGRAMS},
    **{name: frozenset({"--version", "-V"}) for name in ("python", "python3", "pip", "pip3")},
    **{name: frozenset({"--version", "-v"}) for name in ("node", "nodejs", "npm", "tsc", "ruby", "php", "perl")},
    "java": frozenset({"-version", "--version"}),
    "javac": frozenset({"-version", "--version"}),
}

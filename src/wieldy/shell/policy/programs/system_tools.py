"""Programs that list files or tell about the system, and the harmless builtins of the shell."""

from __future__ import annotations

from collections.abc import Mapping

from wieldy.shell.policy.programs.tables import Row

SYSTEM_TOOLS: Mapping[str, Row] = {
    "ls": Row(
        "-aAbBcCdDfFgGhHiklLmnNopqQrRsStuUvxXZ1 -I: -T: -w: --all --almost-all --author --escape --block-size= "
        "--ignore-backups --color=? --directory --dired --classify=? --file-type --format= --full-time "
        "--group-directories-first --no-group --human-readable --si --dereference-command-line "
        "--dereference-command-line-symlink-to-dir --hide= --hyperlink=? --indicator-style= --inode --ignore= "
        "--kibibytes --dereference --numeric-uid-gid --literal --hide-control-chars --show-control-chars "
        "--quote-name --quoting-style= --reverse --recursive --size --sort= --time= --time-style= --tabsize= "
        "--width= --context --zero --help --version",
        "files or here",
        harmless=True,
    ),
    "dir": Row("-aAlh1 --all --color=?", "files or here", harmless=True),
    "tree": Row(
        "-adlfxqNQpugshDFiCnAStrUcvJXI1 -L: -P: -I: -H: -T: -o:w --charset= --filelimit= --dirsfirst --filesfirst "
        "--du --si --noreport --prune --gitignore --ignore-case --matchdirs --inodes --device --timefmt= --sort= "
        "--version --help !--fromfile !--gitfile !--infofile !--fromtabfile",
        "files or here",
        exact=True,
    ),
    "stat": Row(
        "-LftxsF -c: --dereference --file-system --cached= --format= --printf= --terse --help --version",
        "files",
        harmless=True,
    ),
    "file": Row(
        "-bEhiIklLnNrsv0 -e: -F: -P: --brief --mime --mime-type --mime-encoding --dereference --no-dereference "
        "--raw --keep-going --extension --apple --version --help !--compile !--files-from !--uncompress "
        "!--uncompress-noreport !--magic-file",
        "files",
    ),
    "du": Row(
        "-0aAbchHkLlmsSDPx -B: -d: -t: -X:r --null --all --apparent-size --block-size= --bytes --total "
        "--dereference-args --max-depth= --human-readable --inodes --dereference --count-links --no-dereference "
        "--separate-dirs --si --summarize --threshold= --time=? --time-style= --exclude-from=r --exclude= "
        "--one-file-system --help --version !--files0-from",
        "files or here",
        harmless=True,
    ),
    "df": Row(
        "-ahHiklmPTv -B: -t: -x: --all --block-size= --human-readable --si --inodes --local --no-sync --output=? "
        "--portability --total --type= --print-type --exclude-type= --help --version",
        "text",
        harmless=True,
    ),
    "realpath": Row(
        "-eEmLPqsz --canonicalize-existing --canonicalize-missing --logical --physical --quiet --relative-to= "
        "--relative-base= --strip --no-symlinks --zero --help --version",
        "text",
        harmless=True,
    ),
    "readlink": Row(
        "-femnqsvz --canonicalize --canonicalize-existing --canonicalize-missing --no-newline --quiet --silent "
        "--verbose --zero",
        "text",
        harmless=True,
    ),
    "basename": Row("-az -s: --multiple --suffix= --zero --help --version", "text", harmless=True),
    "dirname": Row("-z --zero --help --version", "text", harmless=True),
    "pwd": Row("-LP --logical --physical", "none"),
    "whoami": Row("--help --version", "none"),
    "id": Row("-aZgGnruz --context --group --groups --name --real --user --zero --help --version", "text"),
    "groups": Row("--help --version", "text"),
    "logname": Row("", "none"),
    "tty": Row("-s --silent --quiet", "none"),
    "uname": Row(
        "-asnrvmpio --all --kernel-name --nodename --kernel-release --kernel-version --machine --processor "
        "--hardware-platform --operating-system --help --version",
        "none",
    ),
    "arch": Row("", "none"),
    "hostname": Row(
        "-AdfiIsy --all-fqdns --domain --fqdn --long --ip-address --all-ip-addresses --short --help --version", "none"
    ),
    "nproc": Row("--all --ignore= --help --version", "none"),
    "uptime": Row("-psV --pretty --since --help --version", "none"),
    "free": Row(
        "-bkmghltwvV -c: -s: --bytes --kibi --mebi --gibi --human --lohi --total --wide --si --count= --seconds=",
        "none",
    ),
    "lscpu": Row(
        "-aBbcJprsxy -e? --all --online --offline --json --extended=? --parse=? --hex --physical --bytes", "none"
    ),
    "lsblk": Row(
        "-abdfilmnprtJOP -e: -I: -o: -x: --all --bytes --fs --json --list --noheadings --output= --paths --tree=?",
        "text",
    ),
    "locale": Row("-acmkv --all-locales --charmaps --category-name --keyword-name --verbose", "text"),
    "getconf": Row("-a -v:", "text"),
    "who": Row("-abdHlmpqrstTuw --all --boot --count --heading --login --mesg --short --users", "text"),
    "w": Row("-fhisuoV --no-header --short --from", "text"),
    "last": Row("-adFiwxR -n: -s: -t: -p: -#", "text"),
    "ps": Row(
        "-AaedfFHjlLmNTVyMcwxrhZ -o: -O: -p: -q: -C: -u: -U: -g: -G: -t: -s: --sort= --forest --no-headers "
        "--headers --pid= --ppid= --user= --format= --cols= --columns= --width= --lines= --rows= --help=? "
        "--version",
        "text",
        harmless=True,
    ),
    "pgrep": Row(
        "-acflnovwxiL -d: -P: -g: -s: -t: -u: -U: -G: --full --list-name --list-full --newest --oldest --count", "text"
    ),
    "netstat": Row(
        "-tulnpaersicgWvo46 --tcp --udp --listening --numeric --programs --all --route --interfaces", "text"
    ),
    "ss": Row(
        "-tulnpaxoemiswH46rn --tcp --udp --listening --numeric --processes --all --summary --unix --no-header", "text"
    ),
    "pidof": Row("-cqsx -o: -S:", "text"),
    "printenv": Row("-0 --null --help --version", "text"),
    "cal": Row("-13jmnsSyYwV -A: -B: -n:", "text"),
    "seq": Row("-w -f: -s: --format= --separator= --equal-width --help --version -#", "text"),
    "sleep": Row("--help --version", "text"),
    "expr": Row("--help --version", "text"),
    "factor": Row("--help --version -h", "text"),
    "which": Row("-as --all --skip-alias --skip-functions --tty-only --version", "text"),
    "whereis": Row("-bmslu", "text"),
    "type": Row("-afptP", "text"),
    "wait": Row("", "text"),
    "jobs": Row("-lnprs", "none"),
    "times": Row("", "none"),
    "umask": Row("-pS", "none"),
}
# Only programs that print their version before they look at any file of the project. Not among them: `go`, `cargo` and
# `rustc`, for which the project's files may name another toolchain to be fetched or run.
_VERSION_ONLY = [
    "python",
    "python3",
    "node",
    "nodejs",
    "npm",
    "deno",
    "bun",
    "java",
    "javac",
    "ruby",
    "perl",
    "php",
    "gcc",
    "g++",
    "clang",
    "cc",
    "make",
    "cmake",
    "docker",
    "podman",
    "helm",
    "git",
    "bash",
    "zsh",
    "tsc",
    "uv",
    "pip",
    "pip3",
    "pipx",
    "ruff",
    "mypy",
    "black",
    "sqlite3",
    "psql",
    "curl",
    "wget",
    "rg",
    "fd",
    "jq",
    "gh",
    "ffmpeg",
    "tar",
    "unzip",
    "sed",
    "awk",
    "gawk",
    "grep",
    "find",
]
VERSION_WORDS: Mapping[str, frozenset[str]] = {
    **{name: frozenset({"--version"}) for name in _VERSION_ONLY},
    **{name: frozenset({"--version", "-V"}) for name in ("python", "python3", "pip", "pip3")},
    **{name: frozenset({"--version", "-v"}) for name in ("node", "nodejs", "npm", "tsc", "ruby", "php", "perl")},
    "java": frozenset({"-version", "--version"}),
    "javac": frozenset({"-version", "--version"}),
}

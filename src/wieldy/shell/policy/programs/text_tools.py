"""Programs that read text and print text."""

from __future__ import annotations

from collections.abc import Mapping

from wieldy.shell.policy.programs.tables import Row

_SUM = "-bt --binary --text --tag --zero -z --help --version"

TEXT_TOOLS: Mapping[str, Row] = {
    "cat": Row(
        "-AbeEnstTuv --show-all --number-nonblank --show-ends --number --squeeze-blank --show-tabs "
        "--show-nonprinting --help --version",
        "files",
        harmless=True,
    ),
    "tac": Row("-br -s: --before --regex --separator= --help --version", "files", harmless=True),
    "rev": Row("-0 --zero --help --version", "files", harmless=True),
    "head": Row(
        "-qvz -n: -c: -# --lines= --bytes= --quiet --silent --verbose --zero-terminated --help --version",
        "files",
        harmless=True,
    ),
    "tail": Row(
        "-fFqvzr -n: -c: -s: -# --lines= --bytes= --follow=? --quiet --silent --verbose --retry --pid= "
        "--sleep-interval= --max-unchanged-stats= --zero-terminated --help --version",
        "files",
        harmless=True,
    ),
    "wc": Row(
        "-cmlLw --bytes --chars --lines --max-line-length --words --total= --help --version !--files0-from",
        "files",
        harmless=True,
    ),
    "nl": Row(
        "-p -b: -d: -f: -h: -i: -l: -n: -s: -v: -w: --body-numbering= --section-delimiter= --footer-numbering= "
        "--header-numbering= --line-increment= --join-blank-lines= --number-format= --no-renumber "
        "--number-separator= --starting-line-number= --number-width= --help --version",
        "files",
        harmless=True,
    ),
    "cut": Row(
        "-nsz -b: -c: -d: -f: --bytes= --characters= --delimiter= --fields= --complement --only-delimited "
        "--output-delimiter= --zero-terminated --help --version",
        "files",
        harmless=True,
    ),
    "tr": Row("-cCdst --complement --delete --squeeze-repeats --truncate-set1 --help --version", "text", harmless=True),
    "paste": Row("-sz -d: --delimiters= --serial --zero-terminated --help --version", "files", harmless=True),
    "join": Row(
        "-iz -a: -e: -j: -o: -t: -v: -1: -2: --ignore-case --check-order --nocheck-order --header "
        "--zero-terminated --help --version",
        "files",
        harmless=True,
    ),
    "comm": Row(
        "-123z --check-order --nocheck-order --output-delimiter= --total --zero-terminated --help --version",
        "files",
        harmless=True,
    ),
    "column": Row(
        "-txJneLd -c: -s: -o: -N: -l: -E: -H: -O: -R: -T: -W: -r: -i: -p: -C: --table --separator= "
        "--output-separator= --table-columns= --json --fillrows --columns= --output-width= --table-name= "
        "--table-noheadings --keep-empty-lines",
        "files",
        harmless=True,
    ),
    "fold": Row("-bs -w: --bytes --spaces --width= --help --version", "files", harmless=True),
    "fmt": Row(
        "-cstu -p: -w: -g: -# --crown-margin --prefix= --split-only --tagged-paragraph --uniform-spacing --width= "
        "--goal=",
        "files",
    ),
    "expand": Row("-i -t: -# --initial --tabs= --help --version", "files", harmless=True),
    "unexpand": Row("-a -t: -# --all --first-only --tabs= --help --version", "files", harmless=True),
    "uniq": Row(
        "-cdDuiz -f: -s: -w: -# --count --repeated --all-repeated=? --group=? --skip-fields= --ignore-case "
        "--skip-chars= --unique --zero-terminated --check-chars= --help --version",
        "in then out",
    ),
    "sort": Row(
        "-bdfgiMhnRrVcCmsuz -k: -t: -S: -o:w --ignore-leading-blanks --dictionary-order --ignore-case "
        "--general-numeric-sort --ignore-nonprinting --month-sort --human-numeric-sort --numeric-sort "
        "--random-sort --random-source=r --reverse --sort= --version-sort --batch-size= --check=? --debug --key= "
        "--merge --stable --buffer-size= --field-separator= --parallel= --unique --zero-terminated --output=w "
        "--help --version !--compress-program !--files0-from !--temporary-directory",
        "files",
    ),
    "shuf": Row(
        "-erz -i: -n: -o:w --echo --input-range= --head-count= --output=w --random-source=r --repeat --zero-terminated",
        "files",
    ),
    "tsort": Row("--help --version", "files", harmless=True),
    "numfmt": Row(
        "-d: -z --delimiter= --field= --format= --from= --to= --suffix= --padding= --round= --header=? --invalid=",
        "text",
    ),
    "grep": Row(
        "-EFGPivwxzcLlqsbHhnTZUoaIrRyuV -e: -f:r -m: -A: -B: -C: -d: -D: -# --extended-regexp --fixed-strings "
        "--basic-regexp --perl-regexp --regexp= --file=r --ignore-case --no-ignore-case --invert-match "
        "--word-regexp --line-regexp --null-data --count --color=? --colour=? --files-without-match "
        "--files-with-matches --max-count= --only-matching --quiet --silent --no-messages --byte-offset "
        "--with-filename --no-filename --label= --line-number --initial-tab --null --after-context= "
        "--before-context= --context= --text --binary-files= --devices= --directories= --exclude= "
        "--exclude-from=r --exclude-dir= --include= --recursive --dereference-recursive --line-buffered --binary "
        "--unix-byte-offsets --help --version",
        "pattern then files",
        harmless=True,
        pattern_options=("-e", "-f", "--regexp", "--file"),
        recursive_options=("-r", "-R", "--recursive", "--dereference-recursive"),
    ),
    "rg": Row(
        "-isSFwxvclnNHIopPUquaL0.hV -e: -f:r -g: -t: -T: -A: -B: -C: -m: -M: -r: -E: -d: -j: --regexp= --file=r "
        "--glob= --iglob= --type= --type-not= --type-list --files --files-with-matches --files-without-match "
        "--count --count-matches --line-number --no-line-number --hidden --no-hidden --no-ignore --no-ignore-vcs "
        "--no-ignore-parent --no-ignore-global --no-ignore-dot --no-ignore-files --ignore-case --smart-case "
        "--case-sensitive --fixed-strings --word-regexp --line-regexp --invert-match --context= --after-context= "
        "--before-context= --max-count= --max-depth= --maxdepth= --max-columns= --max-columns-preview --json "
        "--stats --multiline --multiline-dotall --pcre2 --engine= --only-matching --replace= --sort= --sortr= "
        "--color= --colors= --heading --no-heading --column --no-column --vimgrep --with-filename --no-filename "
        "--trim --text --quiet --null --null-data --follow --unrestricted --encoding= --max-filesize= "
        "--one-file-system --passthru --pretty --no-messages --threads= --crlf --binary --no-config "
        "--glob-case-insensitive --context-separator= --field-match-separator= --include-zero --line-buffered "
        "--path-separator= --debug --help --version",
        "pattern then files",
        exact=True,
        pattern_options=("-e", "-f", "--regexp", "--file", "--files", "--type-list"),
        recursive_options=(".",),
    ),
    "diff": Row(
        "-qscuenyptTrNiEZbwBad -C: -U: -W: -F: -x: -X:r -S: -I: --brief --report-identical-files --context=? "
        "--unified=? --ed --rcs --side-by-side --width= --left-column --suppress-common-lines --show-c-function "
        "--show-function-line= --label= --expand-tabs --initial-tab --tabsize= --suppress-blank-empty --recursive "
        "--no-dereference --new-file --unidirectional-new-file --ignore-file-name-case --no-ignore-file-name-case "
        "--exclude= --exclude-from=r --starting-file= --from-file=r --to-file=r --ignore-case "
        "--ignore-tab-expansion --ignore-trailing-space --ignore-space-change --ignore-all-space "
        "--ignore-blank-lines --ignore-matching-lines= --text --strip-trailing-cr --minimal --normal "
        "--horizon-lines= --speed-large-files --color=? --palette= --help --version !--paginate !--ifdef "
        "!--GTYPE-group-format !--line-format",
        "files",
        sweeps=True,
    ),
    "cmp": Row(
        "-bls -i: -n: --print-bytes --ignore-initial= --verbose --bytes= --quiet --silent --help --version",
        "files",
        harmless=True,
    ),
    "strings": Row(
        "-afow -n: -t: -e: -# --all --print-file-name --bytes= --radix= --encoding= --include-all-whitespace", "files"
    ),
    "od": Row(
        "-abcdfilosvx -A: -j: -N: -S: -t: -w? --address-radix= --skip-bytes= --read-bytes= --strings=? --format= "
        "--output-duplicates --width=? --endian= --traditional",
        "files",
        harmless=True,
    ),
    "hexdump": Row(
        "-bcCdovx -e: -f:r -n: -s: --one-byte-octal --one-byte-char --canonical --no-squeezing --length= --skip=",
        "files",
    ),
    "base64": Row("-dDi -w: --decode --ignore-garbage --wrap= --help --version !--output !--input", "files"),
    "base32": Row("-di -w: --decode --ignore-garbage --wrap= --help --version", "files"),
    "cksum": Row("--help --version --untagged --tag -a: --algorithm=", "files"),
    "sum": Row("-rs --sysv --help --version", "files"),
    **{name: Row(_SUM, "files") for name in ("md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum")},
    "b2sum": Row(_SUM + " -l: --length=", "files"),
    "shasum": Row("-bt -a: --algorithm= --binary --text", "files"),
    "iconv": Row("-cls -f: -t: -o:w --from-code= --to-code= --list --silent --output=w", "files"),
    "zcat": Row("-fq --force --quiet", "files"),
    "bzcat": Row("-s --small", "files"),
    "xzcat": Row("-q --quiet", "files"),
    "zipinfo": Row("-12smlvhzt", "files"),
}

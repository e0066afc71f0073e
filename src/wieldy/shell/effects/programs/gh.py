"""`gh`: the verbs that only ask GitHub for something, as a fetch of the host."""

from __future__ import annotations

import re
from collections.abc import Mapping

from wieldy.shell.effects.programs.spec import CallEffects, ParsedArgs, ProgramCall, option_table, parse_args, unknown
from wieldy.shell.effects.words import Word

_OUTPUT = "--json= -q: --jq= --template= -R: --repo="
_LIST = f"{_OUTPUT} -L: --limit= --search= --state= --label= --assignee= --author="
_SEARCH = (
    "--json= -q: --jq= --template= -L: --limit= --sort= --order= --owner= -R: --repo= --language= --state= --author="
)
READING_VERBS: Mapping[tuple[str, str], str] = {
    ("pr", "view"): f"{_OUTPUT} -c --comments",
    ("pr", "diff"): "-R: --repo= --name-only --patch --color=",
    ("pr", "list"): f"{_LIST} --base= --head= --draft",
    ("pr", "checks"): f"{_OUTPUT} --required",
    ("pr", "status"): _OUTPUT,
    ("issue", "view"): f"{_OUTPUT} -c --comments",
    ("issue", "list"): f"{_LIST} --milestone= --mention=",
    ("issue", "status"): _OUTPUT,
    ("run", "view"): f"{_OUTPUT} --log --log-failed --job= --attempt= --exit-status -v --verbose",
    ("run", "list"): f"{_OUTPUT} -L: --limit= --workflow= --branch= --status= --event= --user= --commit= --created=",
    ("workflow", "list"): f"{_OUTPUT} -a --all -L: --limit=",
    ("workflow", "view"): "-R: --repo= --yaml --ref=",
    ("repo", "view"): "--json= -q: --jq= --template= --branch=",
    ("repo", "list"): "--json= -q: --jq= --template= -L: --limit= --language= --topic= --visibility= --fork --source",
    ("release", "view"): _OUTPUT,
    ("release", "list"): f"{_OUTPUT} -L: --limit= --exclude-drafts --exclude-pre-releases",
    ("label", "list"): f"{_OUTPUT} -L: --limit= --search= --sort= --order=",
    **{("search", kind): _SEARCH for kind in ("code", "commits", "issues", "prs", "repos")},
}
_API = "-i -q: --jq= --template= --include --paginate --slurp --silent --hostname= -f: -F: --field= --raw-field="
_DEFAULT_HOST = "github.com"
_WRITING_QUERY = re.compile(r"\b(mutation|subscription)\b", re.IGNORECASE)


def check_gh(call: ProgramCall) -> CallEffects:
    words = [word.text if word.kind == "literal" else "" for word in call.args[:2]]
    if words[:1] == ["api"]:
        return _check_api(parse_args(call.args[1:], option_table(_API, exact=True)))
    options = READING_VERBS.get((words[0], words[1])) if len(words) == 2 else None
    if options is None:
        return unknown(f"`gh {' '.join(words)}` is not known to only read")
    parsed = parse_args(call.args[2:], option_table(options, exact=True))
    return _fetch([*parsed.values("-R", "--repo"), *parsed.operands])


def _check_api(parsed: ParsedArgs) -> CallEffects:
    if len(parsed.operands) != 1 or parsed.operands[0].kind != "literal":
        return unknown("the address for `gh api` is not known in advance")
    fields = parsed.values("-f", "-F", "--field", "--raw-field")
    if parsed.operands[0].text == "graphql":
        if not any(field.text.startswith("query=") for field in fields):
            return unknown("the query of `gh api graphql` is not known in advance")
        # A value that begins with @ is the name of a file.
        if any(field.kind != "literal" or _WRITING_QUERY.search(field.text) or "=@" in field.text for field in fields):
            return unknown("the GraphQL query may change something")
    elif fields:
        return unknown("`gh api` with fields sends a POST")
    return _fetch([*parsed.operands, *parsed.values("--hostname")], is_host=parsed.has("--hostname"))


def _fetch(words: list[Word], *, is_host: bool = False) -> CallEffects:
    """A fetch of the hosts that these words name, GitHub's own if there is none."""
    if any(word.kind != "literal" for word in words):
        return unknown("the repository is not known in advance")
    hosts = [words.pop().text] if is_host else []
    for word in words:
        address, _, path = word.text.partition("://")
        parts = (path or address).split("/")
        # `HOST/OWNER/REPO` or an address.
        if path or (len(parts) == 3 and "." in parts[0]):
            hosts.append(parts[0])
    return CallEffects(fetches=tuple(f"https://{host}/" for host in dict.fromkeys(hosts or [_DEFAULT_HOST])))

# Read by bash through BASH_ENV, before the command itself: the command's text stays exactly as it was given.
# What it starts is known by a number in a limit that nothing enforces; the working directory is told at the end by an EXIT trap; variables that serve only this file are gone afterwards.
if [ -n "${WIELDY_BRAND+set}" ]; then
    builtin ulimit -S -x "$WIELDY_BRAND" 2>/dev/null
fi
trap -- "$WIELDY_AT_EXIT" EXIT
unset -v WIELDY_AT_EXIT WIELDY_BRAND BASH_ENV
if [ -n "${WIELDY_USERS_BASH_ENV+set}" ]; then
    export BASH_ENV="$WIELDY_USERS_BASH_ENV"
    unset -v WIELDY_USERS_BASH_ENV
fi
if [ -r "${WIELDY_ENV_FILE:-${CLAUDE_ENV_FILE:-}}" ]; then
    . "${WIELDY_ENV_FILE:-$CLAUDE_ENV_FILE}"
fi
:

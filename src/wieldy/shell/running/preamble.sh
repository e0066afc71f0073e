# Bash reads this through BASH_ENV before the command, whose text stays exactly as it was given.
# It tags the shell by a resource limit, sets the EXIT trap that reports the working directory, and unsets its own variables.
if [ -n "${WIELDY_TAG_NUMBER+set}" ]; then
    builtin ulimit -S -x "$WIELDY_TAG_NUMBER" 2>/dev/null
fi
trap -- "$WIELDY_AT_EXIT" EXIT
unset -v WIELDY_AT_EXIT WIELDY_TAG_NUMBER BASH_ENV
if [ -n "${WIELDY_USERS_BASH_ENV+set}" ]; then
    export BASH_ENV="$WIELDY_USERS_BASH_ENV"
    unset -v WIELDY_USERS_BASH_ENV
fi
if [ -r "${WIELDY_ENV_FILE:-${CLAUDE_ENV_FILE:-}}" ]; then
    . "${WIELDY_ENV_FILE:-$CLAUDE_ENV_FILE}"
fi
:

#!/bin/sh
# Install what some tests need beside Python, make and git: bubblewrap, strace, btrfs and XFS tools, Chromium, tmux, Node. Never fails: a test that lacks
# its program is skipped, and the summary at the end of the run names it.
missing=""
command -v bwrap >/dev/null || missing="$missing bubblewrap"
command -v mkfs.btrfs >/dev/null || missing="$missing btrfs-progs"
command -v mkfs.xfs >/dev/null || missing="$missing xfsprogs"
command -v strace >/dev/null || missing="$missing strace"
command -v tmux >/dev/null || missing="$missing tmux"
command -v npm >/dev/null || missing="$missing nodejs npm"
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ||
    missing="$missing chromium"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "make test: not installed:$missing (needs apt-get as root); tests that need them are skipped" >&2
    exit 0
fi
echo "make test: installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
timeout 120 apt-get update -qq >/dev/null 2>&1
# shellcheck disable=SC2086
timeout 600 apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 ||
    echo "make test: apt-get could not install$missing; tests that need them are skipped" >&2
exit 0

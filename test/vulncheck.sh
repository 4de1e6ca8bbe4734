#!/bin/sh
# "vulncheck.sh GOVULNCHECK ARGS…" runs it. A vulnerability is an error. That its database (https://vuln.go.dev, or GOVULNDB) cannot be
# reached is none, unless BOOTLAB_REQUIRE has "vulndb": a build without internet access skips the check, and says so.
# "vulncheck.sh probe" fails, and says so, where that is known before govulncheck is built.
set -u
skipped="make vulncheck: skipped: the database of vulnerabilities cannot be reached:"
if [ "$1" = probe ]; then
	case ${GOVULNDB:+set}${BOOTLAB_REQUIRE:-} in set*|*vulndb*) exit 0 ;; esac
	why=$(curl -sS --max-time 20 -o /dev/null https://vuln.go.dev/index/modules.json.gz 2>&1) && exit 0
	echo "$skipped $why"
	exit 1
fi
tool=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$tool" ${GOVULNDB:+-db "$GOVULNDB"} "$@" >"$log" 2>&1
rc=$?
case "$rc ${BOOTLAB_REQUIRE:-}" in
*vulndb*) ;;
1\ *)
	if grep -qE 'fetching vulnerabilities|dial tcp|no such host|i/o timeout|connection refused|unreachable' "$log"; then
		echo "$skipped $(tail -n 1 "$log")"
		exit 0
	fi ;;
esac
cat "$log"
exit $rc

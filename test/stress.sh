#!/bin/sh
# stress.sh PACKAGE…: runs the tests of each package, with the race detector, as COPIES (3) at once, and then with half a processor. Tests
# that depend on how soon something happens fail here first. The quota is a cgroup's where root may make one; elsewhere the
# tests share one processor with a busy loop.
set -u
copies=${COPIES:-3} limit=${TIMEOUT:-60m} failed=
dir=$(mktemp -d) burner= group=
chmod 755 "$dir"
clean() {
	[ -z "$burner" ] || kill "$burner" 2>/dev/null
	[ -z "$group" ] || rmdir "$group" 2>/dev/null
	rm -rf "$dir"
}
trap clean EXIT
trap 'exit 130' INT TERM

# with_quota CMD…: runs it with half a processor.
with_quota() {
	group=/sys/fs/cgroup/stress-$$
	if mkdir "$group" 2>/dev/null && [ -e "$group/cpu.max" ]; then
		echo '50000 100000' >"$group/cpu.max"
		sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@"
		rc=$?
	else
		taskset -c 0 sh -c 'while :; do :; done' &
		burner=$!
		taskset -c 0 "$@"
		rc=$?
		kill "$burner"
		wait "$burner" 2>/dev/null
		burner=
	fi
	rmdir "$group" 2>/dev/null
	return $rc
}

# check NAME: reads exit codes and shows the output of those that are not 0.
check() {
	for rc in "$dir"/*.rc; do
		[ "$(cat "$rc")" = 0 ] || { failed="$failed $1"; tail -n 100 "${rc%.rc}"; }
	done
	rm -f "$dir"/*.rc "$dir"/*.log
}

for package in "$@"; do
	where=$(go list -f '{{.Dir}}' "$package") || exit 1
	echo "== $package"
	go test -race -c -o "$dir/tests" "$package" || { failed="$failed $package"; continue; }
	[ -e "$dir/tests" ] || continue # no tests
	running=
	for i in $(seq "$copies"); do
		(cd "$where" && "$dir/tests" -test.timeout "$limit" >"$dir/$i.log" 2>&1; echo $? >"$dir/$i.log.rc") &
		running="$running $!"
	done
	wait $running
	check "$package (copies)"
	with_quota env -C "$where" "$dir/tests" -test.timeout "$limit" >"$dir/quota.log" 2>&1
	echo $? >"$dir/quota.log.rc"
	check "$package (quota)"
	rm -f "$dir/tests"
done
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }

#!/bin/sh
# Runs every fuzz target of the repository for FUZZTIME each. Go's fuzzing engine ends now and then with "context deadline exceeded"
# when its time is over (go.dev/issue/75804, fixed in Go 1.27): that is the engine's own end
# and no finding. A finding names the file with the input that failed, in testdata/fuzz.
set -u
: "${FUZZTIME:=30s}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=
# A module of its own has its targets too.
for dir in $(git grep -lE '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u); do
	case $dir in
	bench/*) module=bench pkg=./${dir#bench/} ;;
	*) module=. pkg=./$dir ;;
	esac
	for target in $(grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | cut -c6-); do
		echo "== $dir $target"
		go test -C $module -run '^$' -fuzz "^$target\$" -fuzztime "$FUZZTIME" $pkg </dev/null >"$log" 2>&1
		rc=$?
		cat "$log"
		[ $rc = 0 ] && continue
		if grep -q '^ *context deadline exceeded$' "$log" && ! grep -qE 'Failing input written to|panic:|^ *--- FAIL: .*/|fatal error:|_test\.go:[0-9]+:' "$log"; then
			echo "== $dir $target: the engine's own time was over; nothing was found"
			continue
		fi
		failed="$failed $dir:$target"
	done
done
[ -z "$failed" ] || { echo "make fuzz: failed:$failed" >&2; exit 1; }

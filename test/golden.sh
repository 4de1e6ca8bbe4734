#!/bin/sh
# Rewrites the golden files and the pages that are made from code. It runs the tests that compare them, and no others: the test functions
# that call golden.Check or golden.CheckBetween.
set -eu
cd "$(dirname "$0")/.."
tests=$(git grep -n -E '^func |golden\.Check(Between)?\(t, ' -- '*_test.go' ':!test/support/golden' | awk -F: '
	$3 ~ /^func / { name = $3; sub(/^func /, "", name); sub(/\(.*/, "", name); next }
	name !~ /^Test/ { print $1 ":" $2 ": golden.Check is called outside of a test function, by which make golden finds it" >"/dev/stderr"; bad = 1; next }
	{ dir = $1; sub(/\/[^\/]*$/, "", dir); if (!seen[dir, name]++) names[dir] = names[dir] (dir in names ? "|" : "") name }
	END { for (dir in names) print "./" dir, names[dir]; exit bad }
')
names=$(echo "$tests" | cut -d ' ' -f 2 | paste -s -d '|')
go test -short -vet=off -run "^($names)\$" $(echo "$tests" | cut -d ' ' -f 1 | sort) -update </dev/null

#!/usr/bin/env bash
# Runs every fuzz target for the given time: scripts/fuzz.sh 30s
# A failure leaves its input in testdata/fuzz beside the test; commit it with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
git grep -hoE --untracked '^func Fuzz[A-Za-z0-9_]+' -- '*_test.go' >/dev/null || { echo "fuzz: no targets"; exit 0; }
git grep -oE --untracked '^func Fuzz[A-Za-z0-9_]+' -- '*_test.go' | while IFS=: read -r file func; do
	target=${func#func }
	echo "== ./$(dirname "$file") $target"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./$(dirname "$file")" </dev/null
done

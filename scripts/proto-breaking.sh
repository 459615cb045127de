#!/usr/bin/env bash
# Compares the protos with the last release; before the first one, with where this branch left main, and on
# main itself with the last commit. BREAKING_AGAINST=REF compares with another commit.
set -euo pipefail
cd "$(dirname "$0")/.."
buf=${CAIRN_TOOLS_BIN:-$PWD/.tools/bin}/buf

against=${BREAKING_AGAINST:-}
if [ -z "$against" ]; then
	against=$(git describe --tags --match 'v[0-9]*' --abbrev=0 2>/dev/null || true)
fi
if [ -z "$against" ]; then
	for main in origin/main main; do
		if git rev-parse --verify --quiet "$main^{commit}" >/dev/null; then
			against=$(git merge-base HEAD "$main" || true)
			break
		fi
	done
fi
against=${against:-$(git rev-parse --verify --quiet HEAD || true)}
if [ -z "$against" ] || [ -z "$(git ls-tree -r --name-only "$against" -- proto | grep '\.proto$' || true)" ]; then
	echo "proto-breaking: no protos in ${against:-any commit} yet, nothing to compare with"
	exit 0
fi

# A copy of the tree rather than buf's own clone: it works in shallow clones and worktrees alike.
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
git archive "$against" -- buf.yaml proto 2>/dev/null | tar -x -C "$before" ||
	git archive "$against" -- proto | tar -x -C "$before"
[ -f "$before/buf.yaml" ] || cp buf.yaml "$before/"
echo "proto-breaking: against $(git log -1 --format='%h %s' "$against")"
"$buf" breaking --against "$before"

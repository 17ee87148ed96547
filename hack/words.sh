#!/bin/sh
# Counts the words of the user documentation, and fails if there are more words than the limit. A word is a text between
# spaces that contains a letter or a digit, also in a table. The script does not count code blocks.
#
# The script counts README.md and all pages in docs, except:
#
#   docs/reference/{api,cli,conditions,conformance,flags,labels-and-annotations,metrics,provider-specs,timeouts}.md   generated
#   docs/incidents.md, docs/incidents/                                                                                generated
#   docs/runbooks/                                                                                                    one page for each alert
#   docs/dev/                                                                                                         for contributors
#
# usage: hack/words.sh [LIMIT]
set -eu

limit=${1:-50000}
cd "$(dirname "$0")/.."

# pages prints the paths of the files whose words are counted.
pages() {
	echo README.md
	find docs -name '*.md' | sort | grep -v -E \
		-e '^docs/reference/(api|cli|conditions|conformance|flags|labels-and-annotations|metrics|provider-specs|timeouts)\.md$' \
		-e '^docs/incidents(\.md$|/)' -e '^docs/runbooks/' -e '^docs/dev/'
}

pages | while read -r page; do
	awk -v page="$page" '
		/^ *```/ { code = !code; next }
		!code { for (i = 1; i <= NF; i++) if ($i ~ /[A-Za-z0-9]/) n++ }
		END { printf "%6d %s\n", n, page }' "$page"
done | awk -v limit="$limit" '
	{ print; total += $1 }
	END {
		printf "%6d words in %d files, limit %d\n", total, NR, limit
		exit total > limit
	}'

# Keep what a worker has made so far under a ref of its own, unless the last time it was the same.
room=$2 ref=$3 number=$4 python=$5 backup=$6
export GIT_DIR="$1" GIT_INDEX_FILE="$room/save"
shift 6
scripts=$(dirname -- "$0")
. "$scripts/settle.sh"
. "$scripts/snapshot.sh"
keep_tree "$room" "$python" "$@"
last=$(git for-each-ref --sort=-refname --count=1 --format='%(objectname)' "$ref/")
: "${last:=$(cat -- "$room/base")}"
if [ "$last" != "$commit" ] && [ "$(git rev-parse "$last^{tree}")" != "$tree" ]; then
  move_ref "$ref/$number" "$commit"
  [ -z "$backup" ] || push_kept "$backup" "$ref/$number"
fi

# Keep what a worker has made so far under a ref of its own, unless the last time it was the same.
# save_attempt.sh MIRROR PUBLIC SANDBOX DRAFT REF NUMBER BACKUP COMMAND...
public=$2 sandbox=$3 draft=$4 ref=$5 number=$6 backup=$7
export GIT_DIR="$1"
shift 7
scripts=$(dirname -- "$0")
. "$scripts/settle.sh"
. "$scripts/draft.sh"
. "$scripts/snapshot.sh"
keep_tree "$@"
last=$(git for-each-ref --sort=-refname --count=1 --format='%(objectname)' "$ref/")
: "${last:=$(cat -- "$sandbox/base")}"
if [ "$last" != "$commit" ] && [ "$(git rev-parse "$last^{tree}")" != "$(git rev-parse "$commit^{tree}")" ]; then
  move_ref "$ref/$number" "$commit"
  [ -z "$backup" ] || push_kept "$backup" "$ref/$number"
fi
rm -rf -- "$draft"

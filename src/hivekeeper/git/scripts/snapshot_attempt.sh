# Keep what a worker made under a ref of the mirror, and first, under another, what git leaves out of it.
# snapshot_attempt.sh MIRROR PUBLIC SANDBOX DRAFT REF REST-REF COMMAND...
public=$2 sandbox=$3 draft=$4 ref=$5 rest=$6
export GIT_DIR="$1"
shift 6
scripts=$(dirname -- "$0")
. "$scripts/settle.sh"
. "$scripts/draft.sh"
. "$scripts/snapshot.sh"
keep_tree "$@"
if [ -f "$draft/rest.tar" ] && [ ! -L "$draft/rest.tar" ]; then
  move_ref "$rest" "$(git hash-object -w -- "$draft/rest.tar")"
fi
move_ref "$ref" "$commit"
rm -rf -- "$draft"

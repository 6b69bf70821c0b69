# Keep how a conflict was settled, as a merge of both sides: of the files that were laid out, what became of them.
# save_resolution.sh MIRROR PUBLIC DRAFT REF TREE OURS THEIRS COMMAND...
public=$2 draft=$3 ref=$4 tree=$5 ours=$6 theirs=$7
export GIT_DIR="$1"
shift 7
scripts=$(dirname -- "$0")
. "$scripts/settle.sh"
. "$scripts/draft.sh"
open_draft "$draft" "$public" "$tree"
look_inside "$@"
take_draft "$draft"
move_ref "$ref" "$(git commit-tree -p "$ours" -p "$theirs" -m "A settled conflict" "$(cat -- "$draft/tree")")"
rm -rf -- "$draft"

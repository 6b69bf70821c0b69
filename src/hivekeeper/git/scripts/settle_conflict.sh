# Keep how a conflict was settled, as a merge of both sides: of the files that were laid out, what became of them.
# settle_conflict.sh MIRROR ROOM REF TREE OURS THEIRS
room=$2 ref=$3 tree=$4 ours=$5 theirs=$6
export GIT_DIR="$1" GIT_INDEX_FILE="$2/settled"
. "$(dirname -- "$0")/settle.sh"
rm -f -- "$GIT_INDEX_FILE" "$GIT_INDEX_FILE.lock"
git -C "$room/work" --work-tree=. read-tree "$tree"
git -C "$room/work" --work-tree=. add --update -- .
move_ref "$ref" "$(git commit-tree -p "$ours" -p "$theirs" -m "A settled conflict" "$(git write-tree)")"

# Move the integration branch from old to new, or not at all. Landed already is well, once that is safe on disk.
# Every process counts here: this is done for every change.
public=$2 branch=$3 new=$4 old=$5
ref=refs/heads/$branch
export GIT_DIR="$1"
. "${0%/*}/settle.sh"
hold_branches
{ read -r now <"$GIT_DIR/$ref"; } 2>/dev/null || now=$(git rev-parse --quiet --verify "$ref")
if [ "$now" = "$old" ] || ! git merge-base --is-ancestor "$new" "$ref"; then
  bring_public "$public" "$new" "$old"
  move_ref "$ref" "$new" "$old"
  # Where a power cut takes this one, workers begin on something older, and the next landing puts it right.
  (GIT_DIR=$public && clear_locks "$ref" && git update-ref "$ref" "$new")
else
  sync -f "$GIT_DIR"
  share "$public" "$branch"
fi

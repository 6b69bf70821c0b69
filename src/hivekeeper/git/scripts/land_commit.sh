# Move the integration branch from old to new, or not at all. Landed already is well, once that is safe on disk.
public=$2 branch=$3 new=$4 old=$5
ref=refs/heads/$branch
export GIT_DIR="$1"
. "$(dirname -- "$0")/settle.sh"
hold_branches
if git merge-base --is-ancestor "$new" "$ref"; then
  sync -f "$GIT_DIR"
else
  check_whole "$new" "$old" # a power cut may have taken what was verified before it
  move_ref "$ref" "$new" "$old"
fi
share "$public" "$branch"

# Move the integration branch from old to new, or not at all. Landed already is well.
ref=$2 new=$3 old=$4
export GIT_DIR="$1"
. "$(dirname -- "$0")/settle.sh"
hold_branches
git merge-base --is-ancestor "$new" "$ref" || move_ref "$ref" "$new" "$old"

# Move the integration branch from old to new, or not at all. Landed already is well.
mirror=$1 ref=$2 new=$3 old=$4
rm -f "$mirror/$ref.lock"
export GIT_DIR="$mirror"
[ "$(git rev-parse "$ref")" = "$new" ] || git update-ref "$ref" "$new" "$old"

# Bring the person's branch into the mirror, and the integration branch up to it where that is a step forward.
mirror=$1 source=$2 branch=$3
seen=refs/hive/source/$branch
integration=refs/heads/$branch
. "$(dirname -- "$0")/settle.sh"
if [ ! -d "$mirror" ]; then # made apart and whole on disk before it has its name
  rm -rf -- "$mirror.new"
  git init --quiet --bare --template= --initial-branch="$branch" -- "$mirror.new"
  sync -f "$mirror.new"
  mv -- "$mirror.new" "$mirror"
  sync -f "$mirror"
fi
export GIT_DIR="$mirror"
tip=$(tip_of "$source" "refs/heads/$branch")
[ -n "$tip" ] || { echo "there is no branch $branch in $source" >&2; exit 1; }
git fetch --quiet --no-tags --no-write-fetch-head --no-recurse-submodules -- "$source" "$tip"
check_whole "$tip" --all || { echo "the history of $branch in $source is not whole: is it a shallow clone?" >&2; exit 1; }
hold_branches # not before: a network that hangs must not hold up landings
move_ref "$seen" "$tip"
if old=$(git rev-parse --quiet --verify "$integration"); then
  if [ "$old" != "$tip" ] && git merge-base --is-ancestor "$old" "$tip"; then
    move_ref "$integration" "$tip" "$old"
  fi
else
  move_ref "$integration" "$tip" ""
fi

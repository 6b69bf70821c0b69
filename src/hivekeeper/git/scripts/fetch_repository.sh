# Bring the person's branch into the mirror, and the integration branch up to it where that is a step forward. Its
# history goes to the public repository, which workers read; the mirror borrows it from there. Where what landed goes to
# the person's branch itself and both have moved, the integration branch begins anew at the person's; what had landed is
# kept, to be made again on top of it.
mirror=$1 public=$2 source=$3 branch=$4 publish=${5-branch}
seen=refs/hive/source/$branch
integration=refs/heads/$branch
. "$(dirname -- "$0")/settle.sh"

# What only a person can change: 65 is orders.REPO_UNUSABLE. Whatever else fails may pass: a network, a disk, a killed git.
refuse() {
  echo "$1" >&2
  exit 65
}

make_bare "$public" "$branch"
make_bare "$mirror" "$branch" "../../../public/$(basename -- "$public")/objects"
export GIT_DIR="$mirror"
tip=$(tip_of "$source" "refs/heads/$branch")
[ -n "$tip" ] || refuse "there is no branch $branch in $source"
[ ${#tip} -eq 40 ] || refuse "$source is a sha256 repository, and the hive works on sha1 only"
git --git-dir="$public" fetch --quiet --no-tags --no-write-fetch-head --no-recurse-submodules -- "$source" "$tip"
git cat-file -e "$tip" 2>/dev/null || # a mirror of before there was a public repository borrows nothing
  git fetch --quiet --no-tags --no-write-fetch-head -- "$public" "$tip"
check_whole "$tip" --all || refuse "the history of $branch in $source is not whole: is it a shallow clone?"
hold_branches # not before: a network that hangs must not hold up landings
clear_left_over "$mirror/objects" "$public/objects"
move_ref "$seen" "$tip"
if old=$(git rev-parse --quiet --verify "$integration"); then
  if git merge-base --is-ancestor "$old" "$tip"; then
    [ "$old" = "$tip" ] || move_ref "$integration" "$tip" "$old"
  elif [ "$publish" != branch ] && ! git merge-base --is-ancestor "$tip" "$old"; then
    move_ref "refs/hive/replaced/$old" "$old"
    move_ref "$integration" "$tip" "$old"
  fi
else
  move_ref "$integration" "$tip" ""
fi
share "$public" "$branch"

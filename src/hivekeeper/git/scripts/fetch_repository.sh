# Bring the person's branch into the mirror, and the integration branch up to it where that is a step forward.
mirror=$1 source=$2 branch=$3
seen=refs/hive/source/$branch
integration=refs/heads/$branch
git init --quiet --bare "$mirror"
# Only this run moves these refs and the one before it is dead, so a lock left behind is nobody's.
rm -f "$mirror/$seen.lock" "$mirror/$integration.lock" "$mirror/config.lock" "$mirror/HEAD.lock"
export GIT_DIR="$mirror"
git fetch --quiet --no-tags --no-write-fetch-head "$source" "+refs/heads/$branch:$seen"
if old=$(git rev-parse --quiet --verify "$integration"); then
  if git merge-base --is-ancestor "$old" "$seen"; then
    git update-ref "$integration" "$seen" "$old"
  fi
else
  git update-ref "$integration" "$seen" ""
fi
git symbolic-ref HEAD "$integration"

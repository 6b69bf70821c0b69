# Lay out a branch as it is committed, for somebody who only reads it: its files, and what its last commits said. A clone
# of its own, because a repository's own configuration can name programs that a checkout of it would start.
source=$1 branch=$2 directory=$3
git init --quiet --template= --initial-branch="$branch" -- "$directory"
git -C "$directory" fetch --quiet --no-tags --no-recurse-submodules --no-write-fetch-head --update-head-ok --depth=20 \
  -- "$source" "refs/heads/$branch:refs/heads/$branch"
git -C "$directory" reset --quiet --hard

# Bring what landed into the person's repository; git itself refuses anything but a step forward. Why it refused is told
# by the exit code (Refusal in ../forward.py), from what is there and not from git's words.
mirror=$1 source=$2 commit=$3 ref=$4
. "$(dirname -- "$0")/settle.sh"

push() {
  receive=git-receive-pack
  if [ -d "$source" ]; then # the commit is whole on disk before their branch points to it
    git -C "$source" fetch --quiet --no-tags --no-write-fetch-head --no-recurse-submodules -- "$mirror" "$commit" &&
      sync -f "$source" || return
    receive="git -c core.fsync=all -c core.fsyncMethod=fsync receive-pack"
  fi
  git --git-dir="$mirror" push --quiet --no-verify --receive-pack="$receive" -- "$source" "$commit:$ref" || return
  [ ! -d "$source" ] || sync -f "$source"
}

refuse() {
  echo "$2" >&2
  exit "$1"
}

! said=$(push 2>&1) || exit 0
git ls-remote -- "$source" >/dev/null 2>&1 || refuse 72 "$said"
tip=$(tip_of "$source" "$ref")
if [ -n "$tip" ]; then
  export GIT_DIR="$mirror"
  git fetch --quiet --no-tags --no-write-fetch-head --no-recurse-submodules -- "$source" "$tip"
  ! git merge-base --is-ancestor "$commit" "$tip" || exit 0 # it is there, and more on top of it
  git merge-base --is-ancestor "$tip" "$commit" || refuse 71 "it has commits there that the hive does not have"
  unset GIT_DIR
fi
if [ -d "$source" ] && git -C "$source" worktree list --porcelain | grep -qxF "branch $ref"; then
  refuse 73 "$said"
fi
refuse 74 "$said"

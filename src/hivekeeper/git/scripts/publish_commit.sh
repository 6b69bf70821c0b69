# Bring what landed into the person's repository; git itself refuses anything but a step forward.
mirror=$1 source=$2 commit=$3 ref=$4
receive=git-receive-pack
if [ -d "$source" ]; then # the commit is whole on disk before their branch points to it
  git -C "$source" fetch --quiet --no-tags --no-write-fetch-head --no-recurse-submodules -- "$mirror" "$commit"
  sync -f "$source"
  receive="git -c core.fsync=all -c core.fsyncMethod=fsync receive-pack"
fi
git --git-dir="$mirror" push --quiet --no-verify --receive-pack="$receive" -- "$source" "$commit:$ref"
[ ! -d "$source" ] || sync -f "$source"

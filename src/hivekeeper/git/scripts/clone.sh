# lay_out PUBLIC BRANCH SCRATCH DIRECTORY: a clone of `$tip` that borrows its history from the public repository. By
# hand, because `git clone` asks the other side for what is on the same disk anyway; it must not be slower than a
# worktree, so every process counts. One writes the files: several would cost half as much again where that is quick.
lay_out() {
  find_tip "$1" "$2"
  # Where many files were removed in the last minutes ext4 makes new ones ten times slower, and a hive removes clones
  # all the time. So each is made elsewhere on the disk: told so, ext4 chooses by the name, which is new every time.
  chattr +T -- "$3" 2>/dev/null || : # another file system, or no such program
  new=$3/$$
  git init --quiet --template= --initial-branch="$2" -- "$new"
  echo "$1/objects" >"$new/.git/objects/info/alternates"
  url=$1
  case $url in *[\\\"]*) url=$(printf '%s' "$url" | sed 's/[\\"]/\\&/g') ;; esac
  printf '%s\n' "[remote \"origin\"]" "	url = \"$url\"" "	fetch = \"+refs/heads/$2:refs/remotes/origin/$2\"" \
    "[branch \"$2\"]" "	remote = origin" "	merge = \"refs/heads/$2\"" >>"$new/.git/config"
  note_origin "$2" "$new"
  git -C "$new" reset --quiet --hard "$tip"
  mv -T -- "$new" "$4"
}

# find_tip PUBLIC BRANCH: what has landed, as `$tip`; from git only where somebody has packed its refs.
find_tip() {
  { read -r tip <"$1/refs/heads/$2"; } 2>/dev/null || tip=$(git --git-dir="$1" rev-parse "refs/heads/$2")
}

# note_origin BRANCH CLONE: let a clone nobody has used know `$tip` as its origin's, where `git clone` writes it too.
note_origin() {
  printf '%s\n' "# pack-refs with: peeled fully-peeled sorted " "$tip refs/remotes/origin/$1" >"$2/.git/packed-refs"
}

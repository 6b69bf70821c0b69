# lay_out PUBLIC BRANCH DIRECTORY: a clone of `$tip` that borrows its history from the public repository. By hand,
# because `git clone` asks the other side for what is on the same disk anyway; it must not be slower than a worktree, so
# every process counts. One process writes the files: several would cost half as much again where that is quick.
lay_out() {
  find_tip "$1" "$2"
  git init --quiet --template= --initial-branch="$2" -- "$3"
  echo "$1/objects" >"$3/.git/objects/info/alternates"
  url=$1
  case $url in *[\\\"]*) url=$(printf '%s' "$url" | sed 's/[\\"]/\\&/g') ;; esac
  printf '%s\n' "[remote \"origin\"]" "	url = \"$url\"" "	fetch = \"+refs/heads/$2:refs/remotes/origin/$2\"" \
    "[branch \"$2\"]" "	remote = origin" "	merge = \"refs/heads/$2\"" >>"$3/.git/config"
  note_origin "$2" "$3"
  git -C "$3" reset --quiet --hard "$tip"
}

# find_tip PUBLIC BRANCH: what has landed, as `$tip`; from git only where somebody has packed its refs.
find_tip() {
  { read -r tip <"$1/refs/heads/$2"; } 2>/dev/null || tip=$(git --git-dir="$1" rev-parse "refs/heads/$2")
}

# note_origin BRANCH CLONE: let a clone nobody has used know `$tip` as its origin's, where `git clone` writes it too.
note_origin() {
  printf '%s\n' "# pack-refs with: peeled fully-peeled sorted " "$tip refs/remotes/origin/$1" >"$2/.git/packed-refs"
}

# spread DIRECTORY: have ext4 put every directory made in it elsewhere on the disk, by its name. Where many files were
# removed in the last minutes it makes new ones up to ten times slower, and a hive removes clones all the time.
spread() {
  mkdir -p -- "$1"
  chattr +T -- "$1" 2>/dev/null || : # another file system, or no such program
}

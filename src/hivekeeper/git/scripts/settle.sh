# Shared by the scripts that move refs of a mirror ($GIT_DIR): what a ref points to is whole and safe on disk before the
# ref is, and the ref before we say so.

# make_bare DIRECTORY BRANCH [ALTERNATE]: made apart and whole on disk before it has its name.
make_bare() {
  [ ! -d "$1" ] || return 0
  rm -rf -- "$1.new"
  git init --quiet --bare --template= --initial-branch="$2" -- "$1.new"
  [ $# -lt 3 ] || echo "$3" >"$1.new/objects/info/alternates"
  sync -f "$1.new"
  mv -- "$1.new" "$1"
  sync -f "$1"
}

# tip_of REPOSITORY REF: the commit of exactly that ref, and nothing of the same ending. Listed apart, so that git's own
# words are the last ones when it fails.
tip_of() {
  listed=$(git ls-remote -- "$1" "$2")
  echo "$listed" | while read -r id name; do [ "$name" != "$2" ] || echo "$id"; done
}

# One at a time moves branches; the lock dies with its holder, so what git left locked under it is nobody's.
hold_branches() {
  exec 9>>"$GIT_DIR/hive.lock"
  flock 9
  clear_locks
}

# clear_locks [REF]: in one go, for every process counts.
clear_locks() {
  rm -f "$GIT_DIR/HEAD.lock" "$GIT_DIR/config.lock" "$GIT_DIR/packed-refs.lock" ${1:+"$GIT_DIR/$1.lock"}
}

# clear_left_over DIRECTORY...: what gits that were killed had begun to write. A run of ours lives for an hour at most; where
# the clock was set forward, whoever still writes has the file open.
clear_left_over() {
  find "$@" -type f \( -name 'tmp_obj_*' -o -name 'tmp_pack_*' -o -name 'tmp_idx_*' -o -name 'tmp_rev_*' \) -mmin +120 |
    while read -r left; do
      pattern=$(printf '%s' "$left" | sed 's/[][*?\\]/\\&/g')
      [ -n "$(find /proc/[0-9]*/fd -lname "$pattern" -print -quit 2>/dev/null)" ] || rm -f -- "$left"
    done
}

# check_whole NEW [KNOWN...]: every object is there, of those that nothing else holds already.
check_whole() {
  new=$1
  shift
  git rev-list --quiet --objects "$new" --not "$@"
}

# move_ref REF NEW [OLD]: only the run that moves a ref locks it, and the one before it is dead.
move_ref() {
  rm -f "$GIT_DIR/$1.lock"
  sync -f "$GIT_DIR"
  git update-ref "$@"
  sync -f "$GIT_DIR"
}

# bring_public PUBLIC NEW OLD: the objects of a landing, ahead of it: the sync that makes the landing safe makes them so.
# Every one of them is read, so that what a power cut took since it was verified is missed here: half a pack is refused.
bring_public() {
  printf '%s\n' "$2" "^$3" | git pack-objects --quiet --revs --stdout | git --git-dir="$1" unpack-objects -q
}

# share PUBLIC BRANCH: with the branches held, bring what workers may read up to what has landed; it holds that and nothing else.
share() {
  landed=$(git rev-parse "refs/heads/$2")
  public=$(git --git-dir="$1" rev-parse --quiet --verify "refs/heads/$2") || public=
  [ "$public" != "$landed" ] || return 0
  git --git-dir="$1" rev-list --quiet --objects "$landed" --not ${public:+"$public"} 2>/dev/null ||
    git --git-dir="$1" fetch --quiet --no-tags --no-write-fetch-head -- "$GIT_DIR" "$landed"
  (
    export GIT_DIR="$1"
    clear_locks # whoever shares holds the mirror's branches
    move_ref "refs/heads/$2" "$landed"
  )
}

# push_kept BACKUP REF: to a second repository, as a branch nobody works on.
push_kept() {
  git push --quiet --no-verify --force -- "$1" "$2:refs/heads/${2#refs/}"
}

# Shared by the scripts that move refs of a mirror ($GIT_DIR): what a ref points to is whole and safe on disk before the
# ref is, and the ref before we say so.

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
  rm -f "$GIT_DIR/HEAD.lock" "$GIT_DIR/config.lock" "$GIT_DIR/packed-refs.lock"
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

# Shared by the scripts that move refs of a mirror ($GIT_DIR): what a ref points to is safe on disk before the ref is,
# and the ref before we say so.

# tip_of REPOSITORY REF: the commit of exactly that ref, and nothing of the same ending.
tip_of() {
  git ls-remote -- "$1" "$2" | while read -r id name; do [ "$name" != "$2" ] || echo "$id"; done
}

# One at a time moves branches; the lock dies with its holder, so what git left locked under it is nobody's.
hold_branches() {
  exec 9>>"$GIT_DIR/hive.lock"
  flock 9
  rm -f "$GIT_DIR/HEAD.lock" "$GIT_DIR/config.lock" "$GIT_DIR/packed-refs.lock"
}

# move_ref REF NEW [OLD]: only the run that moves a ref locks it, and the one before it is dead.
move_ref() {
  rm -f "$GIT_DIR/$1.lock"
  sync -f "$GIT_DIR"
  git update-ref "$@"
  place=$1
  set --
  while [ "$place" != . ]; do
    set -- "$@" "$GIT_DIR/$place"
    place=$(dirname -- "$place")
  done
  sync "$@"
}

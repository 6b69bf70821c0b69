# keep_tree ROOM PYTHON [KEEP...]: bring what a worker made into the mirror ($GIT_DIR), its commits and what it left uncommitted,
# as `$commit`. Git runs with the mirror's own configuration; the worker's tree is only read, whatever it made of it.
keep_tree() {
  clone=$1/work room=$1 python=$2
  shift 2
  [ -d "$clone" ] && [ ! -L "$clone" ] || { echo "its sandbox is gone" >&2; exit 1; }
  exclude_leftovers "$room"
  rm -f -- "$GIT_INDEX_FILE" "$GIT_INDEX_FILE.lock"
  head=$(cat -- "$room/base") orphan=
  if [ -d "$clone/.git" ] && [ ! -L "$clone/.git" ] &&
    found=$("$python" -I -S "$scripts/../rest.py" tip "$clone/.git" "$room/alternates") && [ -n "$found" ] &&
    fetch_tip "$GIT_INDEX_FILE.tip" "$clone/.git/objects" "$found"; then
    head=$found
  else
    echo "not kept: its git directory, which cannot be read"
    orphan=1
  fi
  git -C "$clone" --work-tree=. read-tree "$head"
  "$python" -I -S "$scripts/../rest.py" specs "$clone" "$@" >"$GIT_INDEX_FILE.paths"
  git -C "$clone" --work-tree=. -c advice.addIgnoredFile=false add --all --ignore-errors --pathspec-file-nul \
    --pathspec-from-file="$GIT_INDEX_FILE.paths" 2>/dev/null || add_each "$clone"
  tree=$(git write-tree)
  commit=$head
  if [ -n "$orphan" ]; then # without its history it is kept, but neither lands nor is gone on from
    commit=$(git commit-tree -m "What the worker left without its history" "$tree")
  elif [ "$tree" != "$(git rev-parse "$head^{tree}")" ]; then
    commit=$(git commit-tree -p "$head" -m "What the worker left uncommitted" "$tree")
  fi
}

# exclude_leftovers ROOM: have git take what an agent program leaves behind ($HIVE_EXCLUDE, of the hive's settings) for
# ignored, whatever the worker has made of its own excludes. The file is where no worker can write.
exclude_leftovers() {
  [ -n "${HIVE_EXCLUDE-}" ] || return 0
  printf '%s\n' "$HIVE_EXCLUDE" >"$1/exclude"
  export "GIT_CONFIG_KEY_$GIT_CONFIG_COUNT=core.excludesFile" "GIT_CONFIG_VALUE_$GIT_CONFIG_COUNT=$1/exclude"
  export "GIT_CONFIG_COUNT=$((GIT_CONFIG_COUNT + 1))"
}

# fetch_tip DIRECTORY OBJECTS COMMIT: by way of a repository of our own that borrows the worker's objects, so that nothing
# else of its git directory is looked at, and every object that comes is checked. It borrows those of the public
# repository too, where that is now: the hive may have been moved since the clone was made.
fetch_tip() {
  rm -rf -- "$1"
  git init --quiet --bare --template= -- "$1" &&
    echo "$2" >"$1/objects/info/alternates" &&
    (cd -- "$GIT_DIR/objects" && [ ! -e info/alternates ] || { cd -- "$(cat info/alternates)" && pwd; }) \
      >>"$1/objects/info/alternates" &&
    git --git-dir="$1" update-ref refs/heads/tip "$3" 2>/dev/null &&
    git fetch --quiet --no-tags --no-write-fetch-head --no-recurse-submodules -- "$1" "$3"
}

# add_each CLONE: one file that git cannot take must not keep it from the others. What is left is packed with the rest.
add_each() {
  git -C "$1" --work-tree=. ls-files -z --others --modified --deleted --exclude-standard | grep -zv '/$' |
    GIT_LITERAL_PATHSPECS=1 xargs -0 -r -n 1 git -C "$1" --work-tree=. add --all -- 2>/dev/null || true
}

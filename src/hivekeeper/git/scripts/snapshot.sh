# keep_tree ROOM PYTHON: bring what a worker made into the mirror ($GIT_DIR), its commits and what it left uncommitted,
# as `$commit`. Git runs with the mirror's own configuration; the worker's tree is only read, whatever it made of it.
keep_tree() {
  clone=$1/work
  [ -d "$clone" ] && [ ! -L "$clone" ] || { echo "its sandbox is gone" >&2; exit 1; }
  rm -f -- "$GIT_INDEX_FILE" "$GIT_INDEX_FILE.lock"
  head=$(cat -- "$1/base")
  if [ -d "$clone/.git" ] && [ ! -L "$clone/.git" ] && found=$(tip_of "$clone" HEAD) && [ -n "$found" ] &&
    git fetch --quiet --no-tags --no-write-fetch-head --no-recurse-submodules -- "$clone" "$found"; then
    head=$found
  else
    echo "not kept: its git directory, which cannot be read"
  fi
  git -C "$clone" --work-tree=. read-tree "$head"
  "$2" -I -S "$scripts/../rest.py" nested "$clone" >"$GIT_INDEX_FILE.paths"
  git -C "$clone" --work-tree=. -c advice.addIgnoredFile=false add --all --ignore-errors --pathspec-file-nul \
    --pathspec-from-file="$GIT_INDEX_FILE.paths" 2>"$GIT_INDEX_FILE.said" || sed 's/^/not kept: /' "$GIT_INDEX_FILE.said"
  tree=$(git write-tree)
  commit=$head
  if [ "$tree" != "$(git rev-parse "$head^{tree}")" ]; then
    commit=$(git commit-tree -p "$head" -m "What the worker left uncommitted" "$tree")
  fi
}

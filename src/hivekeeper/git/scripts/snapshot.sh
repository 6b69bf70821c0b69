# keep_tree COMMAND...: bring what a worker made in `$sandbox` into the mirror ($GIT_DIR) as `$commit`, by way of `$draft`, which
# COMMAND fills inside a sandbox (read_work.sh).
keep_tree() {
  [ -d "$sandbox/work" ] && [ ! -L "$sandbox/work" ] || { echo "its sandbox is gone" >&2; exit 1; }
  base=$(cat -- "$sandbox/base")
  open_draft "$draft" "$public" "$base"
  echo "^$base" >>"$draft/landed"
  cp -- "$sandbox/base" "$sandbox/alternates" "$draft"
  if [ -n "${HIVE_EXCLUDE-}" ]; then # what an agent program leaves behind, whatever the worker made of its own excludes
    mkdir -p -- "$draft/info"
    printf '%s\n' "$HIVE_EXCLUDE" >"$draft/info/exclude"
  fi
  look_inside "$@"
  commit=$(cat -- "$draft/commit")
  take_draft "$draft"
  { echo "$commit"; cat -- "$draft/landed"; } | git rev-list --quiet --objects --stdin
}

# keep_tree COMMAND...: bring what a worker made in `$room` into the mirror ($GIT_DIR) as `$commit`, by way of `$draft`, which
# COMMAND fills inside a sandbox (read_work.sh).
keep_tree() {
  [ -d "$room/work" ] && [ ! -L "$room/work" ] || { echo "its sandbox is gone" >&2; exit 1; }
  base=$(cat -- "$room/base")
  open_draft "$draft" "$public" "$base"
  echo "^$base" >>"$draft/landed"
  cp -- "$room/base" "$room/alternates" "$draft"
  if [ -n "${HIVE_EXCLUDE-}" ]; then # what an agent program leaves behind, whatever the worker made of its own excludes
    mkdir -p -- "$draft/info"
    printf '%s\n' "$HIVE_EXCLUDE" >"$draft/info/exclude"
  fi
  look_inside "$@"
  commit=$(cat -- "$draft/commit")
  take_draft "$draft"
  { echo "$commit"; cat -- "$draft/landed"; } | git rev-list --quiet --objects --stdin
}

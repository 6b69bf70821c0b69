# Make a worker's sandbox: its own clone, home and temporary directory. What a killed run left there was never given to a
# worker.
sandbox=$1 public=$2 branch=$3 mirror=$4 start=$5 cache=$6
. "${0%/*}/clone.sh"
. "${0%/*}/sandbox.sh"
new_sandbox "$sandbox"
mkdir -p -- "$sandbox/mail/inbox/.done" "$sandbox/mail/outbox/.sent"
lay_out "$public" "$branch" "$sandbox" "$sandbox/work"
if [ -n "$start" ]; then # a predecessor's work: only its objects come here, the mirror itself stays out of sight
  git -C "$sandbox/work" fetch --quiet --no-tags --no-write-fetch-head --no-recurse-submodules -- "$mirror" "$start"
  git -C "$sandbox/work" reset --quiet --hard "$start"
fi
echo "${start:-$tip}" >"$sandbox/base"
echo "$public/objects" >"$sandbox/alternates"
if [ -n "${HIVE_KEEP-}" ]; then # what setup makes is nobody's change, ignored by the repository or not
  mkdir -p -- "$sandbox/work/.git/info"
  echo "$HIVE_KEEP" | sed 's|^|/|' >>"$sandbox/work/.git/info/exclude"
fi
if [ -n "${HIVE_EXCLUDE-}" ]; then # what its agent program leaves behind is nobody's change either
  mkdir -p -- "$sandbox/work/.git/info"
  printf '%s\n' "$HIVE_EXCLUDE" >>"$sandbox/work/.git/info/exclude"
fi
[ -z "$cache" ] || bring_kept "$sandbox" "$cache"

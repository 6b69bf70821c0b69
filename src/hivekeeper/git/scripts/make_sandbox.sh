# Make a worker's room: its own clone (from the pool, if one of this boot is ready), home and temporary directory.
# What a killed run left there was never given to a worker.
room=$1 public=$2 branch=$3 pool=$4 mirror=$5 start=$6 cache=$7
. "${0%/*}/clone.sh"
. "${0%/*}/room.sh"
new_room "$room"
for ready in "$pool".*; do # whoever renames it has it
  case $ready in *.new | *'*') continue ;; esac
  ! mv -T -- "$ready" "$room/work" 2>/dev/null || break
done
if [ -d "$room/work" ]; then
  # Nobody has used it: its branch is where git first wrote it, and its files are as its index says. An index newer than
  # they are spares git reading them all, now and at the worker's first look.
  touch -c -- "$room/work/.git/index"
  read -r head <"$room/work/.git/refs/heads/$branch"
  find_tip "$public" "$branch"
  [ "$head" = "$tip" ] || { note_origin "$branch" "$room/work"; git -C "$room/work" reset --quiet --hard "$tip"; }
else
  lay_out "$public" "$branch" "$room" "$room/work"
fi
if [ -n "$start" ]; then # a predecessor's work: only its objects come here, the mirror itself stays out of sight
  git -C "$room/work" fetch --quiet --no-tags --no-write-fetch-head --no-recurse-submodules -- "$mirror" "$start"
  git -C "$room/work" reset --quiet --hard "$start"
fi
echo "${start:-$tip}" >"$room/base"
echo "$public/objects" >"$room/alternates"
if [ -n "${HIVE_KEEP-}" ]; then # what setup makes is nobody's change, ignored by the repository or not
  mkdir -p -- "$room/work/.git/info"
  echo "$HIVE_KEEP" | sed 's|^|/|' >>"$room/work/.git/info/exclude"
fi
if [ -n "${HIVE_EXCLUDE-}" ]; then # what its agent program leaves behind is nobody's change either
  mkdir -p -- "$room/work/.git/info"
  printf '%s\n' "$HIVE_EXCLUDE" >>"$room/work/.git/info/exclude"
fi
[ -z "$cache" ] || bring_kept "$room" "$cache"

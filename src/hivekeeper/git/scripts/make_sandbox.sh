# Make a worker's room: its own clone (from the pool, if one of this boot is ready), home and temporary directory.
# What a killed run left there was never given to a worker.
room=$1 public=$2 branch=$3 pool=$4 mirror=$5 start=$6 cache=$7
. "$(dirname -- "$0")/clone.sh"
. "$(dirname -- "$0")/room.sh"
new_room "$room"
for ready in "$pool".*; do # whoever renames it has it
  case $ready in *.new | *'*') continue ;; esac
  ! mv -T -- "$ready" "$room/work" 2>/dev/null || break
done
[ -d "$room/work" ] || lay_out "$public" "$branch" "$room/work"
cd -- "$room/work"
tip=$(git --git-dir="$public" rev-parse "refs/heads/$branch")
[ "$(git rev-parse HEAD)" = "$tip" ] || { git update-ref "refs/remotes/origin/$branch" "$tip"; git reset --quiet --hard "$tip"; }
if [ -n "$start" ]; then # a predecessor's work: only its objects come here, the mirror itself stays out of sight
  git fetch --quiet --no-tags --no-write-fetch-head --no-recurse-submodules -- "$mirror" "$start"
  git reset --quiet --hard "$start"
fi
git rev-parse HEAD >"$room/base"
cp -- .git/objects/info/alternates "$room/alternates"
[ -z "$cache" ] || bring_kept "$room" "$cache"

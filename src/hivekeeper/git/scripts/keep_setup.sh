# Keep what `setup` has made, for every later clone with the same lock files. One at a time: two would spoil one draft.
room=$1 cache=$2
key=$(cat -- "$room/key")
mkdir -p -- "$cache"
exec 9>>"$cache.lock"
flock 9
[ ! -d "$cache/$key" ] || exit 0
rm -rf -- "$cache/$key.new"
mkdir -- "$cache/$key.new"
echo "$HIVE_KEEP" | while read -r directory; do
  [ ! -d "$room/work/$directory" ] || (cd -- "$room/work" && cp -a --parents -- "$directory" "$cache/$key.new/")
done
sync -f "$cache"
mv -T -- "$cache/$key.new" "$cache/$key"

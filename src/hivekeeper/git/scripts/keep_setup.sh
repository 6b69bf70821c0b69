# Keep what `setup` has made, for every later clone with the same lock files.
room=$1 cache=$2
key=$(cat -- "$room/key")
[ ! -d "$cache/$key" ] || exit 0
rm -rf -- "$cache/$key.new"
mkdir -p -- "$cache/$key.new"
echo "$HIVE_KEEP" | while read -r directory; do
  [ ! -d "$room/work/$directory" ] || (cd -- "$room/work" && cp -a --parents -- "$directory" "$cache/$key.new/")
done
sync -f "$cache"
mv -T -- "$cache/$key.new" "$cache/$key"

# Keep what `setup` has made, for every later clone with the same lock files. One at a time: two would spoil one draft.
# COMMAND copies it inside a sandbox (copy_setup.sh): cache_setup.sh SANDBOX CACHE COMMAND...
sandbox=$1 cache=$2
shift 2
key=$(cat -- "$sandbox/key")
mkdir -p -- "$cache"
exec 9>>"$cache.lock"
flock 9
[ ! -d "$cache/$key" ] || exit 0
rm -rf -- "$cache/$key.new"
mkdir -- "$cache/$key.new"
"$@" "$cache/$key.new"
sync -f "$cache"
mv -T -- "$cache/$key.new" "$cache/$key"

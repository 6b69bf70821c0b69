# Prepare a clone that nobody has used; it is one of this boot, because nothing of it is synced to disk.
public=$1 branch=$2 directory=$3
. "${0%/*}/clone.sh"
[ ! -d "$directory" ] || exit 0
rm -rf -- "$directory.new"
mkdir -p -- "$directory.new"
lay_out "$public" "$branch" "$directory.new" "$directory"
rmdir -- "$directory.new"

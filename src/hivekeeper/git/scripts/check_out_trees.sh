# Lay out several trees side by side: check_out_trees.sh ROOM [MIRROR COMMIT NAME]...
room=$1
shift
. "$(dirname -- "$0")/room.sh"
new_room "$room"
mkdir -- "$room/work"
while [ $# -gt 0 ]; do
  mkdir -- "$room/work/$3"
  GIT_INDEX_FILE="$room/index.$3" git --git-dir="$1" --work-tree="$room/work/$3" read-tree --reset -u "$2"
  shift 3
done

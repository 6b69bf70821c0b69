# Lay out exactly a commit's tree; the git directory stays outside.
mirror=$1 commit=$2 room=$3
. "$(dirname -- "$0")/room.sh"
new_room "$room"
mkdir -- "$room/work"
export GIT_DIR="$mirror" GIT_INDEX_FILE="$room/index"
git --work-tree="$room/work" read-tree --reset -u "$commit"

# Lay out exactly a commit's tree; the git directory stays outside.
mirror=$1 commit=$2 directory=$3
. "$(dirname -- "$0")/sandbox.sh"
new_sandbox "$directory"
mkdir -- "$directory/work"
export GIT_DIR="$mirror" GIT_INDEX_FILE="$directory/index"
git --work-tree="$directory/work" read-tree --reset -u "$commit"

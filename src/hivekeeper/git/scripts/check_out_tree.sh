# Lay out exactly a commit's tree; the git directory stays outside.
mirror=$1 commit=$2 directory=$3
rm -rf -- "$directory" "$directory.index" "$directory.index.lock"
mkdir -p -- "$directory"
export GIT_DIR="$mirror" GIT_INDEX_FILE="$directory.index"
git --work-tree="$directory" read-tree --reset -u "$commit"
rm -f "$directory.index"

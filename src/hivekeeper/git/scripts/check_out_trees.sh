# Lay out several trees side by side: check_out_trees.sh DIRECTORY [MIRROR COMMIT NAME]...
directory=$1
shift
. "$(dirname -- "$0")/sandbox.sh"
new_sandbox "$directory"
mkdir -- "$directory/work"
while [ $# -gt 0 ]; do
  mkdir -- "$directory/work/$3"
  GIT_INDEX_FILE="$directory/index.$3" git --git-dir="$1" --work-tree="$directory/work/$3" read-tree --reset -u "$2"
  shift 3
done

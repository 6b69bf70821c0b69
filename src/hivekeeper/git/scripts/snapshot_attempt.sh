# Keep what a worker made, its commits and what it left uncommitted. Git runs in the mirror with the mirror's own
# configuration; the worker's tree is only read.
clone=$2 ref=$3 index=$4
export GIT_DIR="$1" GIT_INDEX_FILE="$index"
. "$(dirname -- "$0")/settle.sh"
rm -f "$index" "$index.lock"
head=$(tip_of "$clone" HEAD)
[ -n "$head" ] || { echo "its clone has no commit" >&2; exit 1; }
git fetch --quiet --no-tags --no-write-fetch-head --no-recurse-submodules -- "$clone" "$head"
git --work-tree="$clone" read-tree "$head"
git --work-tree="$clone" add --all -- "$clone"
tree=$(git write-tree)
commit=$head
if [ "$tree" != "$(git rev-parse "$head^{tree}")" ]; then
  commit=$(git commit-tree -p "$head" -m "What the worker left uncommitted" "$tree")
fi
move_ref "$ref" "$commit"
rm -f "$index"

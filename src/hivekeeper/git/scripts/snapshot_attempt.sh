# Keep what a worker made, its commits and what it left uncommitted. Git runs in the mirror with the mirror's own
# configuration; the worker's tree is only read.
mirror=$1 clone=$2 ref=$3 index=$4
head=$ref.head
rm -f "$mirror/$ref.lock" "$mirror/$head.lock" "$index" "$index.lock"
export GIT_DIR="$mirror" GIT_INDEX_FILE="$index"
git fetch --quiet --no-tags --no-write-fetch-head "$clone" "+HEAD:$head"
git --work-tree="$clone" read-tree "$head"
git --work-tree="$clone" add --all -- "$clone"
tree=$(git write-tree)
commit=$(git rev-parse "$head^{commit}")
if [ "$tree" != "$(git rev-parse "$head^{tree}")" ]; then
  commit=$(git commit-tree -p "$commit" -m "What the worker left uncommitted" "$tree")
fi
git update-ref "$ref" "$commit"
rm -f "$index"

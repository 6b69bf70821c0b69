# Inside the sandbox: read what a worker made, its commits and what it left uncommitted, into the draft ($GIT_DIR) as one
# commit, packed; and what git leaves out as a tar. Git runs with the draft's own configuration: the worker's tree is only
# read, whatever it made of it. read_work.sh CLONE PYTHON LARGEST-REST [KEEP...]
clone=$1 python=$2 largest=$3
shift 3
scripts=$(dirname -- "$0")

add_all() {
  git -C "$clone" --work-tree=. -c advice.addIgnoredFile=false add --all --ignore-errors --pathspec-file-nul \
    --pathspec-from-file="$GIT_DIR/paths"
}

# add_each: one file that git cannot take must not keep it from the others. What is left is packed with the rest.
add_each() {
  git -C "$clone" --work-tree=. ls-files -z --others --modified --deleted --exclude-standard | grep -zv '/$' |
    GIT_LITERAL_PATHSPECS=1 xargs -0 -r -n 1 git -C "$clone" --work-tree=. add --all -- 2>/dev/null || true
}

# Without capabilities even root may not read what a worker has shut; one that is alive may have its reasons.
unlock() {
  [ "$largest" != 0 ] && "$python" -I -S "$scripts/../rest.py" unlock "$clone"
}

{ [ -x "$clone" ] && [ -r "$clone/.git" ]; } || unlock || :
base=$(cat -- "$GIT_DIR/base")
head=$base orphan=
if [ -d "$clone/.git" ] && [ ! -L "$clone/.git" ] &&
  found=$("$python" -I -S "$scripts/../rest.py" tip "$clone/.git" "$GIT_DIR/alternates") && [ -n "$found" ] &&
  { echo "$found"; cat -- "$GIT_DIR/landed"; } |
    GIT_ALTERNATE_OBJECT_DIRECTORIES=$clone/.git/objects git rev-list --quiet --objects --stdin 2>/dev/null; then
  head=$found
  export GIT_ALTERNATE_OBJECT_DIRECTORIES="$clone/.git/objects"
else
  echo "not kept: its git directory, which cannot be read"
  orphan=1
fi
git -C "$clone" --work-tree=. read-tree "$head"
"$python" -I -S "$scripts/../rest.py" specs "$clone" "$@" >"$GIT_DIR/paths"
add_all 2>/dev/null || { unlock && add_all 2>/dev/null; } || add_each
tree=$(git write-tree)
commit=$head
if [ -n "$orphan" ]; then # without its history it is kept, but neither lands nor is gone on from
  commit=$(git commit-tree -m "What the worker left without its history" "$tree")
elif [ "$tree" != "$(git rev-parse "$head^{tree}")" ]; then
  commit=$(git commit-tree -p "$head" -m "What the worker left uncommitted" "$tree")
fi
{ echo "$commit"; cat -- "$GIT_DIR/landed"; } | git pack-objects --quiet --revs --window=0 --stdout >"$GIT_DIR/pack"
echo "$commit" >"$GIT_DIR/commit"
[ "$largest" != 0 ] || exit 0
{ # what it ignores, and what it could not add; of directories it cannot open the tar's own list tells
  git -C "$clone" --work-tree=. ls-files -z --others --ignored --exclude-standard --directory
  git -C "$clone" --work-tree=. ls-files -z --others --modified --exclude-standard
} >"$GIT_DIR/ignored" 2>/dev/null
"$python" -I "$scripts/../rest.py" pack "$clone" "$GIT_DIR/ignored" "$GIT_DIR/rest.tar" "$largest" "$@"

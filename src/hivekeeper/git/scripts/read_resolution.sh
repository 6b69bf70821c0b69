# Inside the sandbox: read what became of the files of a conflict into the draft ($GIT_DIR), as a tree, packed.
# read_resolution.sh DIRECTORY TREE
git -C "$1" --work-tree=. read-tree "$2"
git -C "$1" --work-tree=. add --update -- .
git write-tree >"$GIT_DIR/tree"
{ cat -- "$GIT_DIR/tree" "$GIT_DIR/landed"; } | git pack-objects --quiet --revs --window=0 --stdout >"$GIT_DIR/pack"

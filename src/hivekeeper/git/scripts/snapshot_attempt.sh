# Keep what a worker made under a ref of the mirror, and first, under another, what git leaves out of it.
room=$2 ref=$3 rest=$4 python=$5 largest=$6
export GIT_DIR="$1" GIT_INDEX_FILE="$room/index"
shift 6
scripts=$(dirname -- "$0")
. "$scripts/settle.sh"
. "$scripts/snapshot.sh"
keep_tree "$room" "$python" "$@"
git -C "$room/work" --work-tree=. ls-files -z --others --ignored --exclude-standard --directory >"$room/ignored"
git -C "$room/work" --work-tree=. ls-files -z --others --modified --exclude-standard >>"$room/ignored" # what it could not add
"$python" -I "$scripts/../rest.py" pack "$room/work" "$room/ignored" "$room/rest.tar" "$largest" "$@"
if [ -e "$room/rest.tar" ]; then
  move_ref "$rest" "$(git hash-object -w -- "$room/rest.tar")"
fi
move_ref "$ref" "$commit"

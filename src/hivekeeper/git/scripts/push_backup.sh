# Push what is kept of an attempt to a second repository.
export GIT_DIR="$1"
. "$(dirname -- "$0")/settle.sh"
push_kept "$2" "$3"

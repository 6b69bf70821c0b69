# Bring a commit of a person's own into the mirror, under a ref: fetch_branch.sh MIRROR SOURCE COMMIT REF
source=$2 commit=$3 ref=$4
export GIT_DIR="$1"
. "$(dirname -- "$0")/settle.sh"
git cat-file -e "$commit^{commit}" 2>/dev/null ||
  git fetch --quiet --no-tags --no-write-fetch-head --no-recurse-submodules -- "$source" "$commit"
check_whole "$commit" --all
move_ref "$ref" "$commit"

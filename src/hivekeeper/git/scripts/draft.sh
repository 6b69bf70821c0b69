# A draft: a repository of our own beside a worker's tree (which no worker can write to), into which a command
# inside a sandbox like the worker's reads that tree. A worker may swap a directory for a link under whoever reads it; in
# there a link leads to nothing that the worker could not read anyway. The mirror takes what the draft holds afterwards.

# open_draft DIRECTORY PUBLIC ID: make it, with what has landed and one more object (a commit or tree) within reach.
# `landed` in it are the heads of the public repository: what can be reached from them need not be brought.
open_draft() {
  rm -rf -- "$1"
  git init --quiet --bare --template= -- "$1"
  echo "$2/objects" >"$1/objects/info/alternates"
  git --git-dir="$2" for-each-ref --format='^%(objectname)' refs/heads >"$1/landed"
  git --git-dir="$1" cat-file -e "$3" 2>/dev/null ||
    { echo "$3"; cat -- "$1/landed"; } | git pack-objects --quiet --revs --stdout | git --git-dir="$1" unpack-objects -q
}

# look_inside COMMAND...: run what reads the tree into `$draft`; none of its objects has to outlive that.
look_inside() {
  (export GIT_DIR="$draft" GIT_INDEX_FILE="$draft/index" GIT_CONFIG_VALUE_0=none && "$@")
}

# take_draft DIRECTORY: bring what was packed there into the mirror ($GIT_DIR), each object checked as it comes.
take_draft() {
  [ -f "$1/pack" ] && [ ! -L "$1/pack" ] || { echo "nothing was read of its tree" >&2; exit 1; }
  if [ "$(od -An -j8 -N4 -tu4 --endian=big "$1/pack")" -lt 100 ]; then
    git unpack-objects -q <"$1/pack"
  else # many objects make one pack, as a fetch does
    git index-pack --stdin <"$1/pack" >/dev/null
  fi
}

# A worker's sandbox, and what `setup` makes in its clone, which is kept for every later clone with the same lock files.

new_sandbox() {
  rm -rf -- "$1"
  mkdir -p -- "$1/home" "$1/tmp"
}

# read_inside DIRECTORY FILE: a link may lead anywhere, and to what never ends.
read_inside() {
  found=$(realpath -e -- "$1/$2" 2>/dev/null) || found=
  case $found in
    "$(realpath -- "$1")"/*) [ ! -f "$found" ] || cat -- "$found" ;;
    *) echo "$2 is not there" ;;
  esac
}

# bring_kept SANDBOX CACHE: `$HIVE_KEEP` names directories, `$HIVE_LOCK` files, one a line; `$HIVE_SETUP` is the command.
bring_kept() {
  key=$({
    printf '%s\n' "$HIVE_SETUP" "$HIVE_KEEP"
    echo "$HIVE_LOCK" | while read -r file; do read_inside "$1/work" "$file"; done
  } 2>&1 | sha256sum | cut -c 1-32)
  echo "$key" >"$1/key"
  if [ -d "$2/$key" ]; then
    cp -a --reflink=auto -- "$2/$key/." "$1/work/"
    touch "$1/ready"
  fi
}

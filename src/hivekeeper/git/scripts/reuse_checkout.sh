# Lay out exactly a commit's tree where another one was before: only what differs is written. The git directory and the
# index stay outside. Whatever a gate left there is removed; where that cannot be done, or a run was cut off in it, or
# the machine restarted, everything is made anew: reuse_checkout.sh MIRROR COMMIT CHECKOUT BOOT [CACHE]
mirror=$1 commit=$2 checkout=$3 boot=$4 cache=${5-}
umask 022
. "$(dirname -- "$0")/sandbox.sh"
export GIT_DIR="$mirror" GIT_INDEX_FILE="$checkout/index"

again() {
  read -r made _ <"$checkout/whole" && [ "$made" = "$boot" ] || return 1
  rm -rf -- "$checkout/whole" "$checkout/home" "$checkout/tmp" "$checkout/ready" "$checkout/index.lock" || return 1
  # Git takes no notice of what is called so, and a worker's git would.
  find "$checkout/work" -name .git -prune -exec rm -rf -- {} + || return 1
  # Before anything is compared: what a link leads to would be taken for what was there.
  git -C "$checkout/work" --work-tree="$checkout/work" clean -ffdxq || return 1
  git --work-tree="$checkout/work" read-tree --reset -u "$commit" || return 1
  is_exact
}

# Git sees neither modes other than its own, nor pipes and sockets, nor what lies in a submodule's directory.
is_exact() {
  wrong=$(find "$checkout/work" \( -type d ! -perm 755 -o -type f ! -perm 644 ! -perm 755 \) -print -quit) &&
    [ -z "$wrong" ] &&
    [ "$(find "$checkout/work" ! -type d -printf x | wc -c)" = "$(git --work-tree="$checkout/work" ls-files --stage | grep -vc ^160000)" ]
}

if ! again 2>/dev/null; then
  rm -rf -- "$checkout" 2>/dev/null || { chmod -R u+rwX -- "$checkout"; rm -rf -- "$checkout"; }
  mkdir -p -- "$checkout/work"
  git --work-tree="$checkout/work" read-tree --reset -u "$commit"
fi
mkdir -p -- "$checkout/home" "$checkout/tmp"
[ -z "$cache" ] || bring_kept "$checkout" "$cache"
echo "$boot $commit" >"$checkout/whole"

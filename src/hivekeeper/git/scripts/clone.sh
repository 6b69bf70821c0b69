# lay_out PUBLIC BRANCH DIRECTORY: a clone that borrows its history from the public repository. By hand, because `git
# clone` asks the other side for what is on the same disk anyway; it must not be slower than a worktree.
lay_out() {
  tip=$(git --git-dir="$1" rev-parse "refs/heads/$2")
  git init --quiet --template= --initial-branch="$2" -- "$3"
  echo "$1/objects" >"$3/.git/objects/info/alternates"
  url=$(printf '%s' "$1" | sed 's/[\\"]/\\&/g')
  cat >>"$3/.git/config" <<END
[remote "origin"]
	url = "$url"
	fetch = "+refs/heads/$2:refs/remotes/origin/$2"
[branch "$2"]
	remote = origin
	merge = "refs/heads/$2"
END
  printf 'create %s %s\n' "refs/heads/$2" "$tip" "refs/remotes/origin/$2" "$tip" | git -C "$3" update-ref --stdin
  git -C "$3" -c checkout.workers=0 reset --quiet --hard
}

# Inside the sandbox: copy the directories that `setup` has made and that are kept. copy_setup.sh CLONE TARGET
cd -- "$1"
echo "$HIVE_KEEP" | while read -r directory; do
  [ ! -d "$directory" ] || cp -a --parents -- "$directory" "$2/"
done

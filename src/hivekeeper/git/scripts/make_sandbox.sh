# Make a worker's own clone; what a killed run left there was never given to a worker.
mirror=$1 branch=$2 directory=$3
rm -rf -- "$directory"
mkdir -p -- "$(dirname -- "$directory")"
git clone --quiet --shared --no-tags --single-branch --template= --branch "$branch" -- "$mirror" "$directory"

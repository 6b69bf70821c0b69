"""A coordinator of one's own, in a page: three orders, the last one after the second; kill it whenever you like."""

import json
import sys

from hivekeeper.api import AnotherKeeperError, Coordinator, Task

# It promises a file, so it begins in an empty directory of its own; a script of yours would be "$HIVE_ROOT/script.sh".
ORDER = """\
mkdir outputs
echo "$HIVE_TASK began" >> "outputs/$HIVE_TASK.md"
sleep {seconds}
echo "$HIVE_TASK done" >> "outputs/$HIVE_TASK.md"
"""


def main(directory: str, seconds: str) -> int:
    """Keep the pipeline until it is complete."""
    try:
        with Coordinator("orders", directory) as coordinator:
            coordinator.add(
                Task("order_1", ORDER.format(seconds=0), output="outputs/order_1.md"),
                Task("order_2", ORDER.format(seconds=seconds), output="outputs/order_2.md"),
                Task("order_3", ORDER.format(seconds=0), after=["order_2"], output="outputs/order_3.md"),
            )
            complete = coordinator.keep()
            print(json.dumps(coordinator.ledger(), indent=2))
    except AnotherKeeperError as error:
        print(error)  # somebody keeps this pipeline already: leave it alone
        return 0
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

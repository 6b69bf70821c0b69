"""The command line: parse, call one command or view, print. It decides nothing."""

import sys

from hivekeeper.errors import HiveError


def main() -> None:
    """Run `hive`; every error a person may meet is a sentence, advice and an exit code."""
    try:
        # Imported here, so that Ctrl-C meanwhile ends without a traceback; a worker's commands need little.
        from hivekeeper.cli.inside import inside_app, is_inside  # noqa: PLC0415 - as above

        if is_inside(sys.argv[1:]):
            inside_app()
        from hivekeeper.cli.app import app  # noqa: PLC0415 - as above

        app()
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        sys.exit(130)
    except HiveError as error:
        sys.stderr.write(f"hive: {error}\n")
        sys.exit(error.exit_code)
    except BrokenPipeError:  # `hive log | head` is not an error
        sys.stderr.close()
        sys.exit(0)

"""``python -m repro_audit``: the console script where it is not on the path."""

from repro_audit.cli.main import main

if __name__ == "__main__":
    main()

"""``python -m goffish``."""

from goffish.cli import main

if __name__ == "__main__":
    main()

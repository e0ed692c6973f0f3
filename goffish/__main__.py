"""``python -m goffish``, and what ``spark-submit`` runs on the driver."""

from goffish.cli import main

if __name__ == "__main__":
    main()

"""What ``spark-submit`` runs on the driver: the command line of GoFFish."""

from goffish.cli import main

if __name__ == "__main__":
    main()

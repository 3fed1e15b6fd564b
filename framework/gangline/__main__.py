"""`python -m gangline`."""

from gangline.main import main

main()

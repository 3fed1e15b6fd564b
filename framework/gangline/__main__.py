"""`python -m gangline`."""

from gangline.start import main

main()

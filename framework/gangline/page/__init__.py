"""The page that shows the cluster live in a browser: its picture, the changes of the picture, and who may see what."""

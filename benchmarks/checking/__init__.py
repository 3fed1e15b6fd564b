"""Whether Gangline has become more expensive: figures that hardly depend on the machine, and the bars for them."""

"""Graph partitions and the exchange of halo rows between them."""

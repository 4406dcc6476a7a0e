"""The live cluster: collections of the API server, listed and watched, published as immutable values."""

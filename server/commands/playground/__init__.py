"""The playground: rules, a pod and a cluster in a browser, and the decision on them."""

"""The kind Diagnostic: finds problems of objects of the cluster. It is not evaluated at admission."""

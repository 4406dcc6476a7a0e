"""The API server's own admission of pods: its plugins in their order, before and after those of others.

Source: kubernetes/pkg/kubeapiserver/options/plugins.go (AllOrderedPlugins, DefaultOffAdmissionPlugins).
"""

from collections.abc import Callable, Collection, Mapping

from rules_engine.cluster.creation.pod_creation import PodCreation

Plugin = Callable[[PodCreation], None]
"""Changes or refuses a pod. Raises RefusedError."""

MUTATING: Mapping[str, Plugin] = {}
"""The mutating halves by name, in their order."""

VALIDATING: Mapping[str, Plugin] = {}
"""The validating halves by name, in their order; ResourceQuota, which counts earlier pods, comes after them."""

OPTIONAL: Collection[str] = ("ExtendedResourceToleration", "PodNodeSelector")
"""Plugins that are off by default."""

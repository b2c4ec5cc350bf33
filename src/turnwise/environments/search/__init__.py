"""Questions that are answered by searching documents; see `environment.SearchEnvironment`."""

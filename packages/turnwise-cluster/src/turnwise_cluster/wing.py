"""The wing: the section `cluster`, processes and machines beside the run's own process."""

from turnwise.wings import Wing

WING = Wing(
    settings={"cluster": "turnwise_cluster.settings:ClusterConfig"},
    resources={"cluster": "turnwise_cluster.resources:allocated"},
)

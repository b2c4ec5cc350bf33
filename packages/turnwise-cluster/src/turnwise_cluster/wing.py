"""The wing: the section `cluster`, processes and machines beside the run's own process."""

from turnwise.wings import Wing

WING = Wing(sections={"cluster": "turnwise_cluster.resources:allocated"})

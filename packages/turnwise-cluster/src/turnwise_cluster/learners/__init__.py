"""A learner on several processes: ranks that are started, reached and ended by turnwise itself.

Not here: what a rank computes (`turnwise.learning`), which asks of its `Ranks` what is collective.
"""

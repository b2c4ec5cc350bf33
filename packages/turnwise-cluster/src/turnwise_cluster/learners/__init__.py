"""A learner on several processes: ranks that are started, reached and ended by turnwise itself."""

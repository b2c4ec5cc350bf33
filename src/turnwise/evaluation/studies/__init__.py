"""The figures of a study, from its run folders alone: metrics, effects, verdicts, curves, pages."""

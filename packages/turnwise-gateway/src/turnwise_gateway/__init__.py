"""A server by which an agent of one's own talks to the policy, with exact tokens."""

"""A service desk: customers, orders, a policy, and a user who gives facts one by one."""

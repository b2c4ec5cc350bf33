"""A service desk: customers, orders, a policy, and a user who tells things one by one."""

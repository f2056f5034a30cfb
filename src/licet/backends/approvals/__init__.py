"""Approvals: stored requests and answers, and the approver at the terminal."""

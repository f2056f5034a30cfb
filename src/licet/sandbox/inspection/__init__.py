"""Looks into the HTTPS of programs: certificates of a run, and keys that programs never see."""

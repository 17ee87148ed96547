"""Drivers that need no hypervisor, switch or disk."""

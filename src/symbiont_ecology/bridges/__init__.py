"""Bridges to other libraries: a run as their model, our questions as their data. One file each.

Each needs the library that it is named after, and is imported when it is used.
"""

"""The synthetic tasks that the embedded host was made for: conventions, depths, wordings.

Their files are grouped by what they ask about. ``docs/hosts.md`` says what they can show.
"""

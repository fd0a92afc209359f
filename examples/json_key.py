"""A grader of one's own: a reply is right if it is a JSON object that has the wanted key."""

import json

from symbiont_ecology import graders


@graders.function("json_key")
def has_key(reply: str, answer: str) -> bool:
    """The reference answer is the key."""
    try:
        parsed = json.loads(reply)
    except ValueError:
        return False
    return isinstance(parsed, dict) and answer in parsed

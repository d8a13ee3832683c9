"""Tell what pip-audit found, read as JSON from standard input."""

import json
import sys


def report(text: str) -> list[str]:
    """A line for each known vulnerability, and one that says how many packages were looked up."""
    try:
        found = json.loads(text)["dependencies"]
    except ValueError:
        return ["audit: pip-audit could not be run here"]
    known = [package for package in found if "vulns" in package]
    lines = [
        f"audit: {package['name']} {package['version']}: {each['id']} "
        f"(fixed in: {', '.join(each['fix_versions']) or 'no release yet'})"
        for package in known
        for each in package["vulns"]
    ]
    return [*lines, f"audit: {len(known)} of {len(found)} packages could be looked up"]


sys.stdout.writelines(f"{line}\n" for line in report(sys.stdin.read()))

# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a rollout as JUnit XML, for a CI: a test case for each stage, analysis and the
whole. Pure.

The form is the one that GitLab, Jenkins and GitHub's actions read: https://llg.cubic.org/docs/junit/
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

from .story import Story


def xml(story: Story) -> str:
    """Return the report as JUnit XML."""
    suite = ET.Element("testsuite", name=story.title, time=f"{story.length:.3f}")
    _whole(suite, story)
    for verdict in story.verdicts:
        case = _case(suite, story, f"analysis {verdict.gate}", 0.0)
        if verdict.verdict == "failed":
            ET.SubElement(case, "failure", message=verdict.message, type="analysis")
    for stage in story.stages:
        case = _case(suite, story, f"stage {stage.name}", stage.took or 0.0)
        if stage.reached is None:
            ET.SubElement(case, "skipped", message="not reached")
    kinds = {"tests": "testcase", "failures": "testcase/failure", "skipped": "testcase/skipped"}
    for attribute, path in kinds.items():
        suite.set(attribute, str(len(suite.findall(path))))
    suite.set("errors", "0")
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _whole(suite: ET.Element, story: Story) -> None:
    """Add the case of the rollout itself; one in progress is skipped."""
    case = _case(suite, story, story.title, story.length)
    if not story.outcome:
        ET.SubElement(case, "skipped", message=story.headline)
    elif story.outcome not in ("promoted", "superseded"):
        what = f"{story.headline}: {story.reason}" if story.reason else story.headline
        ET.SubElement(case, "failure", message=what, type=story.outcome).text = story.remedy


def _case(suite: ET.Element, story: Story, name: str, seconds: float) -> ET.Element:
    return ET.SubElement(
        suite, "testcase", classname=f"rollout.{story.service}", name=name, time=f"{seconds:.3f}"
    )

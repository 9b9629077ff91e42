# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a rollout as JUnit XML, for a CI: a test case for each stage, analysis and the
whole. Pure.

The form is the one that GitLab, Jenkins and GitHub's actions read: https://llg.cubic.org/docs/junit/
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

from .report_model import ReportModel


def xml(report: ReportModel) -> str:
    """Return the report as JUnit XML."""
    suite = ET.Element("testsuite", name=report.title, time=f"{report.length:.3f}")
    _whole(suite, report)
    for verdict in report.verdicts:
        case = _case(suite, report, f"analysis {verdict.gate}", 0.0)
        if verdict.verdict == "failed":
            ET.SubElement(case, "failure", message=verdict.message, type="analysis")
    for stage in report.stages:
        case = _case(suite, report, f"stage {stage.name}", stage.took or 0.0)
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


def _whole(suite: ET.Element, report: ReportModel) -> None:
    """Add the case of the rollout itself; one in progress is skipped."""
    case = _case(suite, report, report.title, report.length)
    if not report.outcome:
        ET.SubElement(case, "skipped", message=report.headline)
    elif report.outcome not in ("promoted", "superseded"):
        what = f"{report.headline}: {report.reason}" if report.reason else report.headline
        ET.SubElement(case, "failure", message=what, type=report.outcome).text = report.remedy


def _case(suite: ET.Element, report: ReportModel, name: str, seconds: float) -> ET.Element:
    return ET.SubElement(
        suite, "testcase", classname=f"rollout.{report.service}", name=name, time=f"{seconds:.3f}"
    )

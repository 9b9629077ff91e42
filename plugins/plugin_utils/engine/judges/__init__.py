# SPDX-License-Identifier: GPL-3.0-or-later
"""Judges of measurements.

Pure: no clock, no randomness; plain numbers in, a verdict and a sentence out.
"""

"""A run to look at: everything that is known of it as one document, with advice, and as a page."""

from saccade.report.types import Advice, Percentiles, Report, ReportStep

__all__ = ["Advice", "Percentiles", "Report", "ReportStep"]

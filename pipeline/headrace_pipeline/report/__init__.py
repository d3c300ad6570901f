"""The report on a cluster: measures, sections, plots and the page."""

"""One huge deflated member over many tasks: scan, link, extract segments, finish.

Entry points: `scan.run_scan`, `link.link_members`, `slices.extract_segment`, and for the report
`slices.finish_members`.
"""

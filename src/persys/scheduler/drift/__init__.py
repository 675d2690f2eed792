"""Differences between nodes and records. `core/drift.py` decides what is drift.

records.py     the drift records, and their transactions
detection.py   adds detected and resolved drift to the transaction of a decision
orphans.py     records copies that no assignment asks for
adoption.py    adopts or deletes an orphan for an operator
tombstones.py  removes stale copies of moved or deleted workloads until the node confirms

`reconcile` calls detection, full lists of nodes reach orphans, `api/drift.py` calls adoption.
"""

"""Differences between nodes and records. `core/drift.py` decides what is drift.

records.py     drift records and unassigned copies in memory, and the transactions of drift
orphans.py     records copies that no assignment asks for
adoption.py    adopts or deletes an orphan for an operator
tombstones.py  removes stale copies of moved or deleted workloads until the node confirms

`reconcile/decision_to_transaction.py` adds the drift of a decision, full lists of nodes reach orphans,
`api/drift.py` calls adoption.
"""

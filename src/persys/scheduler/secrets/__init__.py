"""Secrets: stored encrypted, resolved only for orders to agents.

store.py       the built-in store: put, delete, decrypt
references.py  which workloads refer to which secrets; resolves references, from the built-in store or
               Vault, when an order is sent

`api/secrets.py` calls the store, `dispatch/agent_client.py` the references.
"""

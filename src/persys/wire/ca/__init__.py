"""Messages of the certificate authority. Called by persys-ca, its client, and the join commands.

`messages.py`    requests and responses, as JSON
`join_token.py`  the text format of join tokens
"""

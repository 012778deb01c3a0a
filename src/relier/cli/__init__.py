"""The command `rl`: what people and scripts ask of a ledger, and do to it.

`main.py` maps names to commands and imports none of them: each is imported when it runs, so `rl --help` is quick.
`session.py` is what they share: options, settings, store, ledger, and which error ends with which exit code.
"""

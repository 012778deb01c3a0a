"""Join groups and chords in the ledger.

- backend.py       replaces how the result backend counts the parts of a chord
- parts.py         delivers the result or failure of a member to its chord, with the member's commit
- join.py          starts the chord's body, or reports its failure, once all parts are there
- nesting.py       gives the body nested lists when members of the chord are groups
- large_values.py  stores values that are too large for the body's message
- errbacks.py      prevents nested chords from calling an error callback twice
"""

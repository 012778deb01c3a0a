"""What makes a task safe to accept, safe to run twice and safe to deploy over, from `push` to the ledger and back.

crew.py      a namespace of one's own: clients with settings of their own, a worker in this process, a clock to set
Each guard has its file. What the scripts alone promise is in tests/ledger; here it is the whole way that counts.
"""

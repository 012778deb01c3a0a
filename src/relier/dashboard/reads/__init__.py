"""What the pages show, as plain data: one function per page. Each takes a bounded number of reads."""

"""The long run before a release: many schedules, in pieces, and a record in the repository of what they proved."""

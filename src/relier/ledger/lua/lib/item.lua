-- Defines a task to enter, in ARGV: ITEM values, the last of them at TAIL:
--   id, queue, priority, eta, expires, key, on_conflict, nonce, options ('1': line 2 holds some), tail
-- on_conflict: return, replace, or for a follow-up `join <size> <part>` (see join.lua).
-- eta and expires: 0 none, > 0 a time (TIME, ms), < 0 that many ms from now. tail: the record from `priority` on, with
-- the payload (see layout.lua).
local ITEM, TAIL = 10, 9

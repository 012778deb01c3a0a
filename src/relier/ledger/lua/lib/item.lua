-- Defines a task to enter, in ARGV: ITEM values, the last two of them at TAIL and EXTRA:
--   id, queue, priority, eta, expires, key, on_conflict, nonce, options ('1': line 2 holds some), tail, extra
-- on_conflict: return, replace, for a follow-up `join <size> <part>` (see join.lua), or for a member of a batch
-- `member <batch> <how> <parent> <task> <fence> <boot>` (see batch.lua). how: opens (the call creates the batch, inside `parent` or
-- '-'), with (another item of the call creates it), adds (it exists), stored (the item was). task, fence, boot: the running member
-- that adds this one, or '-'.
-- eta and expires: 0 none, > 0 a time (TIME, ms), < 0 that many ms from now. tail: the record from `priority` on, with
-- the payload (see layout.lua). extra: '' or, as MessagePack, {flags, field, value, …}: flags of the record, and fields to store
-- beside it.
local ITEM, TAIL, EXTRA = 11, 9, 10

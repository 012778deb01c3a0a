-- Returns whether it is too late for a task to begin. A task that has run before continues, however late: ending it would lose
-- the work it did.
-- use: time spec
local function expired(r) return with_spec(r).expires and r.fence == '0' and r.expires <= now end

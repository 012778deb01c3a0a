-- Whether it is too late for a task to begin. One that a worker had goes on, however late: to end it here would lose what it did.
-- use: time spec
local function expired(r) return with_spec(r).expires and r.fence == '0' and r.expires <= now end

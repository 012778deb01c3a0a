-- The one order inside a queue: by time of arrival (µs), each step of priority worth a minute of waiting. So a task of
-- higher priority overtakes, and one of lower priority is overtaken for that long at the most: nothing starves.
-- Revived tasks come before all others of their queue (REVIVED): their scores are below zero.
local function order(at_us, priority) return at_us - priority * PRIORITY_STEP end

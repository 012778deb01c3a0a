-- Defines the order inside a queue: by time of arrival (µs), with each step of priority worth a minute of waiting. So tasks of
-- higher priority overtake others, but only for that long: no task starves.
-- Revived tasks come before all others of their queue (REVIVED): their scores are below zero.
local function order(at_us, priority) return at_us - priority * PRIORITY_STEP end

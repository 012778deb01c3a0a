"""Events: what scripts write when a task, a batch, a schedule or the cluster changes (lua/lib/tell.lua)."""

package simulation

// Incidents is what went wrong elsewhere, as public trackers tell it.
const Incidents Group = "incidents"

package disruption

// PauseBudget is the name of the MachineDisruptionBudget that stops all voluntary disruptions in a namespace. machinist
// pause --fleet creates it, and machinist resume --fleet deletes it.
const PauseBudget = "machinist-pause"

package disruption

// PauseBudget is the name of the MachineDisruptionBudget that machinist pause --fleet creates in order to stop all
// voluntary disruptions in a namespace. machinist resume --fleet deletes it.
const PauseBudget = "machinist-pause"

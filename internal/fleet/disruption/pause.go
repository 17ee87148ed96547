package disruption

// PauseBudget is the name of the MachineDisruptionBudget by which machinist pause --fleet stops every voluntary
// disruption in a namespace, and which machinist resume --fleet deletes.
const PauseBudget = "machinist-pause"

package queueing

import "time"

// ConflictDelay is the time after which a controller tries again if its write conflicted with another write. If the
// controller watches the object, the event of the other write usually triggers it earlier.
const ConflictDelay = time.Second

package queueing

import "time"

// ConflictDelay is the time after which a controller retries a conflicting write. If the controller watches the object,
// the event of the other write usually triggers it earlier.
const ConflictDelay = time.Second

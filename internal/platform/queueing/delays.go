package queueing

import "time"

// ConflictDelay is the time after which a controller retries a write that conflicted with a write of another client. If
// the controller watches the object, the event for the other write usually triggers the controller earlier.
const ConflictDelay = time.Second

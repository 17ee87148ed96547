package queueing

import "time"

// ConflictDelay is after how long a controller tries again if another writer was first. The other write triggers a
// pass, too, unless it is one that the controller does not watch.
const ConflictDelay = time.Second

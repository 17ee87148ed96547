package queueing

import "time"

// ConflictDelay is the time after which a controller tries again because its write conflicted with another write.
// Usually the other write triggers a pass earlier, unless the controller does not watch for it.
const ConflictDelay = time.Second

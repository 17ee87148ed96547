// Package drain empties a Node before its machine is removed, and waits for its volumes to be detached.
//
// The decisions are pure: [Plan] tells for every pod of a node what happens to it now and why, [PlanVolumes] whether a
// volume is still to be waited for. [Controller] gathers what they need from the target cluster, applies what they
// say and remembers between two checks what only a process can know: what the API server refused and when to ask again.
//
// The Machine reconciler calls [Controller.Drain] and then [Controller.VolumesDetached] in each of its passes and
// writes what they report into the machine's conditions. The first call checks once, so that an empty node costs
// neither a wait nor a write; whatever is left to do is done by the workers of this package, which trigger the
// machine through [Controller.Triggers] when there is something new to report. Everything but the memory of
// rejections and of evicted controllers is rebuilt from the API after a restart: the start of the drain is the
// transition time of the machine's Drained condition.
package drain

// Package capacity remembers for which MachineClasses the cloud has no capacity.
//
// The memory is the condition CapacityAvailable and the field status.capacityRetryTime of the classes. When the
// cloud refuses an instance for lack of capacity, the condition becomes False, also on all other classes whose
// instances come from the same pool of capacity. Until capacityRetryTime, each further refusal is expected and
// writes nothing. After capacityRetryTime, one machine of the pool at a time probes the cloud. If the cloud refuses
// the probe, the next wait is twice as long. If the instance of the probe runs, the condition becomes True.
//
// Controllers of other processes read the memory from the classes. The slots of the probes are in the memory of the
// provider process that leads. A new leader may therefore send one more probe than its predecessor.
package capacity

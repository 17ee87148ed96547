// Package machine follows one Machine from its declaration to its end: it makes the instance, waits for the Node and
// applies the node template to it, checks both, and removes everything again in the right order.
//
// A pass over a Machine reads as its life does: claim, launch, registration, health; or deletion. Each step continues
// to the next at once unless it has to wait for the world, and what a pass learned is written in at most one patch of
// the Machine, one of its Node and one of its status. Nothing is remembered that could not be learned again: the
// small memory that the reconciler keeps only spares calls and holds the settling time of lost creations.
package machine

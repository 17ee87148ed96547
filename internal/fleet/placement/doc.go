// Package placement decides where the machines of a deployment with spec.placement are. It contains only pure
// functions: a Planner is created from a State, and the controller writes what the Planner decides.
//
//   - shares.go computes how many machines each domain should have.
//   - planner.go counts the machines and decides where the next machine is created.
//   - capacity.go decides which options have capacity.
//   - victims.go decides which machine is deleted first when there are too many.
//   - rebalance.go decides which machine is replaced in order to restore the distribution.
//   - report.go and message.go describe the distribution for the condition Balanced.
//   - validate.go finds errors in a placement that the schema cannot detect.
//
// A domain's surplus is the number of its machines minus its share of the replicas. A negative surplus is a deficit.
// New machines go to the domain with the largest deficit. The first machines that are deleted belong to the domain
// with the largest surplus. Therefore, scaling and rollouts restore the distribution after the cloud had no
// capacity.
//
// Shares are not integers. The package compares them exactly, as fractions, because rounding errors would break ties
// at random and move machines without a reason.
package placement

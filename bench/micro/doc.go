// Package micro contains benchmarks of single steps: one reconcile of each kind, and each hot function, in fleets of
// 100 and of 10,000 machines. The objects are read from the real cache, which is filled from memory. Nothing is
// written.
//
//	go test -bench . -benchmem ./bench/micro
//
// Tests in this package count allocations, because the number of allocations does not vary. The allocations of a
// reconcile must not grow with the fleet.
package micro

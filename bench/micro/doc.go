// Package micro contains benchmarks of single steps: one reconcile of each kind, and each hot function, in fleets of
// 100 and of 10,000 machines. The benchmarks read objects from the real cache and write nothing.
//
//	go test -bench . -benchmem ./bench/micro
//
// Tests in this package count allocations, because the number of allocations does not vary. The allocations of a
// reconcile must not grow with the fleet.
package micro
